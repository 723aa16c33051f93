"""Three tenants that all want more than there is: crowds of small tasks, and one large task among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator, Workers

START = datetime(2013, 1, 1, tzinfo=UTC)
CROWDS = {"acme": 40, "globex": 40, "initech": 8}
# A node goes away under some of them.
AGAIN = {"retries": 3, "retry_delay": timedelta(seconds=1)}

for tenant, count in CROWDS.items():
    with DAG(f"crowd_{tenant}", schedule=None, start_date=START, max_active_tasks=64, default_args=AGAIN):
        RayTenantJobOperator.partial(
            task_id="small", tenant=tenant, num_cpus=1, memory="512MiB", poll_interval=1.0
        ).expand(entrypoint=[["sleep", str(18 + number % 5)] for number in range(count)])
        if tenant == "initech":
            RayTenantJobOperator(
                task_id="large",
                tenant=tenant,
                entrypoint="sleep 5",
                memory="512MiB",
                workers=Workers(count=7, num_cpus=1, memory="512MiB"),
                poll_interval=1.0,
            )
