"""Three tenants that all want more than there is: crowds of small tasks, and one large task among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator, Workers

START = datetime(2013, 1, 1, tzinfo=UTC)
CROWDS = {"acme": 40, "globex": 40, "initech": 5}
# A node goes away under some of them.
AGAIN = {"retries": 3, "retry_delay": timedelta(seconds=1)}
SLOT = {"num_cpus": 1, "memory": "512MiB"}

# Seconds, or until the one who started the run has seen enough.
SLEEP = "for n in $(seq {}); do [ -e {{{{ dag_run.conf.enough }}}} ] || sleep 1; done"

for tenant, count in CROWDS.items():
    with DAG(f"crowd_{tenant}", schedule=None, start_date=START, max_active_tasks=64, default_args=AGAIN):
        RayTenantJobOperator.partial(task_id="small", tenant=tenant, poll_interval=1.0, **SLOT).expand(
            entrypoint=[SLEEP.format(40 + 2 * (number % 5)) for number in range(count)]
        )

with DAG("large", schedule=None, start_date=START, default_args=AGAIN):
    # Half of the cluster, the other half of which others were promised.
    RayTenantJobOperator(
        task_id="large",
        tenant="initech",
        entrypoint="sleep 5",
        workers=Workers(count=5, **SLOT),
        poll_interval=1.0,
        **SLOT,
    )
