"""DAGs of one small job each, which counts its starts and waits until the test lets it go."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from fault_lanes import COUNT_DIR, JOB, LANES

from airflow_provider_raytenant import RayTenantJobOperator

NODE = "raytenant.local/node"


def dag(name: str, retries: int = 1) -> DAG:
    """A DAG that the tests trigger, many runs at a time."""
    return DAG(
        name,
        schedule=None,
        start_date=datetime(2013, 1, 1, tzinfo=UTC),
        max_active_runs=64,
        max_active_tasks=64,
        default_args={"retries": retries, "retry_delay": timedelta(seconds=2)},
    )


def job(tenant: str = "plain", node: str = "node-1", **options: object) -> RayTenantJobOperator:
    """The job of a run; ``node`` is the name of the one node that it may run on."""
    return RayTenantJobOperator(
        task_id="job",
        tenant=tenant,
        entrypoint=["python", os.environ[JOB], "{{ dag_run.conf['run'] }}"],
        env_vars={COUNT_DIR: os.environ[COUNT_DIR]},
        label_selector={NODE: node},
        poll_interval=2.0,
        **options,
    )


for lane in LANES:
    with dag(lane):
        job(lane)

with dag("deleted"):
    job()

with dag("paused"):
    job()

with dag("upstream"):
    BashOperator(task_id="before", bash_command="sleep {{ dag_run.conf.get('seconds', 0) }}") >> job()

with dag("worker"):
    job(deferrable=False)

with dag("full"):
    job(node="head")

with dag("doomed", retries=2):
    job(node="node-2")
