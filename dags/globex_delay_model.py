"""
### A plane left late. How late will it land?

Tenant **globex** trains a delay model on one month of flights: a ridge regression that takes the airline,
the airports, the hour, the distance and the delay at departure, and is judged on days it never saw. Its
polars is not acme's: each job brings its own packages to the same cluster.

| reads | `flights/<month>.csv` |
|---|---|
| **writes** | `models/<month>.json`: coefficients, cross-validation, errors |
| **returns** | rows, mean absolute error in minutes (the model's and a baseline's), R², polars' version |
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Workers

WORKERS = Workers(count=2, num_cpus=1, memory="512MiB")

with DAG(
    dag_id="globex_delay_model",
    schedule=None,
    params={"month": Param("2013-01", type="string", pattern="^2013-(0[1-9]|1[0-2])$")},
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["globex", "flights"],
):
    RayTenantJobOperator(
        task_id="train",
        tenant="globex",
        entrypoint=["python", "train.py", "{{ params.month }}", "--workers", str(WORKERS.count)],
        working_dir="jobs/globex_model",
        py_modules=["jobs/jobkit"],
        pip=["polars==1.20.0", "numpy>=2"],
        # The driver asks for one CPU, while numpy would take every core of the node.
        env_vars={"OMP_NUM_THREADS": "1"},
        num_cpus=1,
        memory="512MiB",
        workers=WORKERS,
        job_timeout=timedelta(minutes=15),
    )
