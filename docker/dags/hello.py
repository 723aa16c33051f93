"""A few small jobs of two tenants: more than the cluster holds at once, so their pools queue them."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator

with DAG("hello", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    for tenant in ("acme", "globex"):
        RayTenantJobOperator.partial(task_id=f"greet_{tenant}", tenant=tenant, memory="512MiB").expand(
            entrypoint=[f"sleep 5; echo hello number {number} of $RAYTENANT_TENANT" for number in range(6)]
        )
