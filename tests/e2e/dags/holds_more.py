"""A job that declares one CPU and has two tasks of one CPU each, until a file is there."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator

HOLDS = """
import pathlib, ray, sys, time
ray.init(log_to_driver=False)
hold = ray.remote(num_cpus=1)(lambda: time.sleep(600))
held = [hold.remote() for _ in range(2)]
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.2)
"""

with DAG("holds_more", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
    RayTenantJobOperator(
        task_id="hold",
        tenant="acme",
        entrypoint=["python", "-c", HOLDS, "{{ dag_run.conf['end'] }}"],
        poll_interval=1.0,
    )
