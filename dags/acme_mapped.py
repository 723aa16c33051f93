"""
### A stretch of days, a job each

The job of `acme_daily_delays` for several days in one run: Airflow maps the task over the days, acme's pool
decides how many of them run at once, and the last task reads what each job returned.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Workers

with DAG(
    dag_id="acme_mapped",
    schedule=None,
    params={
        "first_day": Param("2013-01-01", type="string", format="date"),
        "days": Param(5, type="integer", minimum=1, maximum=31),
    },
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["acme", "flights"],
):

    @task
    def days() -> list[dict[str, str]]:
        """The environment variables of each job."""
        params = get_current_context()["params"]
        first = date.fromisoformat(params["first_day"])
        return [{"DAY": str(first + timedelta(days=number))} for number in range(params["days"])]

    @task
    def most_cancelled(reports: Any) -> dict[str, Any]:
        """Of what each job returned, the day with the largest share of cancelled flights."""
        worst: dict[str, Any] = max(reports, key=lambda report: report["cancelled"] / report["rows"])
        return worst

    delays = RayTenantJobOperator.partial(
        task_id="delays",
        tenant="acme",
        entrypoint='python delays.py "$DAY" --workers 1',
        working_dir="jobs/acme_delays",
        py_modules=["jobs/jobkit"],
        pip=["polars==1.30.0"],
        num_cpus=1,
        memory="512MiB",
        workers=Workers(count=1, num_cpus=1, memory="512MiB"),
        job_timeout=timedelta(minutes=10),
        map_index_template="{{ task.env_vars['DAY'] }}",
    ).expand(env_vars=days())

    most_cancelled(delays.output)
