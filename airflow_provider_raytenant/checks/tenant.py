"""What the tenant file alone says of a tenant."""

from __future__ import annotations

from airflow_provider_raytenant.checks.finding import Finding, ok, warning
from airflow_provider_raytenant.domain.tenants import RoleCredentials, Tenant


def judge_credentials(tenant: Tenant) -> Finding:
    """Which credentials its jobs have."""
    if isinstance(tenant.credentials, RoleCredentials):
        return warning(
            "credentials",
            f"of {tenant.credentials.role_arn}, narrowed to its prefix: this version cannot do that yet, "
            "so DAGs that use the tenant are refused",
            "Say `credentials: node` for this tenant until then.",
        )
    if tenant.credentials == "node":
        return ok("credentials", "the nodes' own, which reach every prefix")
    return ok("credentials", "none: the tenant has no storage")
