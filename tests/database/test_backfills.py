"""Where tasks of backfills queue, out of real tables of Airflow's, in SQLite and in PostgreSQL."""

from __future__ import annotations

import pytest
from airflow.models.dagrun import DagRun
from sqlalchemy import update

from airflow_provider_raytenant.database.backfills import BackfillTasks, read_backfill_tasks
from tests.database.tables import Tables

POOLS = ("ray.acme", "ray.acme.backfill")


def runs(tables: Tables, run_type: str) -> None:
    """All runs that there are now become of this type."""
    with tables.engine.begin() as connection:
        connection.execute(update(DagRun).values(run_type=run_type))


def test_unfinished_tasks_of_backfills_by_pool_and_slots(tables: Tables) -> None:
    for state in ("scheduled", "queued", "running", "deferred", "up_for_retry", None):
        tables.tasks(2, run="a backfill's", state=state)
    for state in ("success", "failed", "skipped", "removed", "upstream_failed"):
        tables.tasks(2, run="a backfill's", state=state)
    tables.tasks(7, run="a backfill's")
    tables.tasks(1, 1, dag="other", run="a backfill's", pool="ray.acme.backfill")
    tables.tasks(1, run="a backfill's", pool="ray.globex")
    tables.run("etl", "over", None, state="success")
    tables.tasks(2, run="over")
    runs(tables, "backfill")

    assert read_backfill_tasks(POOLS) == [
        BackfillTasks("ray.acme", 2, 6, "etl"),
        BackfillTasks("ray.acme", 7, 1, "etl"),
        BackfillTasks("ray.acme.backfill", 1, 2, "other"),
    ]


@pytest.mark.parametrize("run_type", ["scheduled", "manual", "asset_triggered"])
def test_other_runs_do_not_count(tables: Tables, run_type: str) -> None:
    tables.tasks(1, 2)
    runs(tables, run_type)
    assert read_backfill_tasks(POOLS) == []


def test_it_only_reads_and_in_one_query(tables: Tables, statements: list[str]) -> None:
    tables.tasks(1)
    runs(tables, "backfill")
    statements.clear()
    assert read_backfill_tasks(POOLS) == [BackfillTasks("ray.acme", 1, 1, "etl")]
    assert [statement.split()[0] for statement in statements] == ["SELECT"]
