"""A job that uses secrets in driver and worker, and prints them, which it should not."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator, Secret

with DAG("canary", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
    RayTenantJobOperator(
        task_id="sing",
        tenant="acme",
        entrypoint=["python", "-m", "canary_kit.sing"],
        py_modules=["canary_kit"],
        secrets={
            "CANARY": Secret.variable("acme_canary"),
            "CANARY_DSN": Secret.connection("acme_canary_dsn"),
        },
        poll_interval=1.0,
        memory="256MiB",
    )
