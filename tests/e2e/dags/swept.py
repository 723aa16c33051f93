"""A task whose job the tests of the sweep leave behind."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator

with DAG("swept", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=UTC)):
    RayTenantJobOperator(
        task_id="sleeper", tenant="acme", entrypoint="sleep 300", memory="256MiB", poll_interval=1.0
    )
