"""The daily load once more, for a tenant that may leave its pool: what happens without our pools."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator, Workers

with DAG(
    "free_daily",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    max_active_runs=31,
):
    RayTenantJobOperator(
        task_id="load",
        tenant="unbound",
        pool="default_pool",
        entrypoint=["sleep", "120"],
        num_cpus=1,
        memory="512MiB",
        workers=Workers(count=2, num_cpus=1, memory="512MiB"),
        poll_interval=1.0,
    )
