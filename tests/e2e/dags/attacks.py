"""A hostile job of tenant ac, and three of its victim acme."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_raytenant import RayTenantJobOperator, Secret

START = datetime(2013, 1, 1, tzinfo=UTC)
QUICK = {"poll_interval": 1.0, "memory": "256MiB"}
PASSWORD = {"DB_PASSWORD": Secret.variable("acme_db_password")}

with DAG("attacker", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="attack",
        tenant="ac",
        entrypoint=["python", "-m", "attack_kit.main"],
        py_modules=["attack_kit"],
        job_timeout=240,
        **QUICK,
    )

with DAG("victim_ended", schedule=None, start_date=START):
    RayTenantJobOperator(task_id="end", tenant="acme", entrypoint="true", secrets=PASSWORD, **QUICK)

with DAG("victim_holds", schedule=None, start_date=START):
    # It is stopped by the attacker.
    RayTenantJobOperator(
        task_id="hold", tenant="acme", entrypoint="echo holding; sleep 240", secrets=PASSWORD, **QUICK
    )

with DAG("victim_waits", schedule=None, start_date=START):
    RayTenantJobOperator(task_id="wait", tenant="acme", entrypoint="touch ran", secrets=PASSWORD, **QUICK)
