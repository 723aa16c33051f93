"""Each Airflow task as an isolated Ray Job of one tenant, queued by Airflow pools.

The names a DAG author needs are offered here lazily: importing the package costs nothing.

    from airflow_provider_raytenant import RayTenantJobOperator, Secret, Workers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Secret, Workers

__version__ = "0.1.0"
__all__ = ["RayTenantJobOperator", "Secret", "Workers", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("RayTenantJobOperator", "Secret", "Workers"):
        from airflow_provider_raytenant.operators import job

        return getattr(job, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
