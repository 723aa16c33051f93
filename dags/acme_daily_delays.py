"""
### How late was New York yesterday?

Every day, tenant **acme** reads that day's flights from its own storage and computes delay statistics
for each carrier, two carriers at a time.

| reads | `flights/<day>.csv` |
|---|---|
| **writes** | `delays/<day>.json` |
| **returns** | the day, its rows, carriers and cancellations, the version of polars, the URL of the report |

The data covers 2013. Give a run a logical date in that year, or fill a month:

    airflow backfill create --dag-id acme_daily_delays --from-date 2013-01-01 --to-date 2013-01-31
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Workers

WORKERS = Workers(count=2, num_cpus=1, memory="512MiB")

with DAG(
    dag_id="acme_daily_delays",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    # A month of days may be under way: how many run at once is for acme's pool to say.
    max_active_runs=31,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["acme", "flights"],
):
    RayTenantJobOperator(
        task_id="delays",
        tenant="acme",
        entrypoint=["python", "delays.py", "{{ ds }}", "--workers", str(WORKERS.count)],
        working_dir="jobs/acme_delays",
        py_modules=["jobs/jobkit"],
        pip=["polars==1.30.0"],
        num_cpus=1,
        memory="512MiB",
        workers=WORKERS,
        job_timeout=timedelta(minutes=10),
    )
