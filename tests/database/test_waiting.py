"""What is known of a task that waits, out of real tables of Airflow's, in SQLite and in PostgreSQL."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from airflow.models.backfill import Backfill
from airflow.models.base import Base
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from airflow_provider_raytenant.database.demand import TaskLimit
from airflow_provider_raytenant.database.waiting import Situation, read_situation
from airflow_provider_raytenant.domain.waiting_facts import HeldBack, Line, Past, Runs, Upstream
from airflow_provider_raytenant.exceptions import RequestError
from airflow_provider_raytenant.links.dashboard import RayJobLink
from tests.database.tables import DAY, NOW, Tables

MORE_TABLES = ("xcom", "backfill", "trigger", "serialized_dag", "dag_code", "dag_version")


class Plain(BaseOperator):
    """An operator of somebody's."""


class OfTenant(BaseOperator):
    """A class of somebody's that inherits our link."""

    operator_extra_links = (RayJobLink(),)


@pytest.fixture(autouse=True)
def cleared(tables: Tables) -> None:
    with tables.engine.begin() as connection:
        for name in MORE_TABLES:
            connection.execute(Base.metadata.tables[name].delete())


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def put(tables: Tables, model: Any, **values: Any) -> None:
    with tables.engine.begin() as connection:
        connection.execute(insert(model), values)


def situation(task_id: str = "load", run_id: str = "one", *more: Any) -> Situation:
    return read_situation("etl", run_id, task_id, *more)


def refusal(*asked: Any) -> str:
    with pytest.raises(RequestError) as error:
        read_situation(*asked)
    return str(error.value)


def write_dag(tables: Tables, dag: DAG) -> None:
    with Session(tables.engine) as session:
        SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name="dags", session=session)
        session.commit()


# -- which one is meant --------------------------------------------------------------------------------


def test_a_dag_that_is_not_there_names_the_most_alike(tables: Tables) -> None:
    for number in range(20):
        tables.dag(f"other{number}")
    tables.dag("daily_delays")
    tables.dag("daily_gone", is_stale=True)
    error = refusal("daily_delay", "one", "load")
    assert error.startswith("DAG_ID: found 'daily_delay'; allowed: daily_delays, other0, ")
    assert error.endswith(" and 11 more")
    assert "daily_gone" not in error


def test_a_run_that_is_not_there_names_the_last_ones(tables: Tables) -> None:
    tables.dag("etl")
    assert refusal("etl", "one", "load") == "RUN_ID: found 'one'; allowed: etl has no run yet"
    for number in range(7):
        at = DAY + timedelta(days=number)
        tables.run("etl", f"run{number}", at)
        with tables.engine.begin() as connection:
            run = Base.metadata.tables["dag_run"]
            connection.execute(update(run).where(run.c.run_id == f"run{number}").values(run_after=at))
    assert refusal("etl", "one", "load") == (
        "RUN_ID: found 'one'; allowed: the runs of etl: run6, run5, run4, run3, run2 and 2 older ones"
    )


def test_a_task_that_is_not_there_names_those_of_the_run(tables: Tables) -> None:
    tables.tasks(1, task_id="extract")
    for index in (0, 1):
        tables.tasks(1, task_id="transform", map_index=index)
    error = refusal("etl", "one", "load")
    assert error == "TASK_ID: found 'load'; allowed: the tasks of the run: extract, transform"


def test_a_map_index_that_is_not_there_names_those_there_are(tables: Tables) -> None:
    for index in (0, 1, 2, 5):
        tables.tasks(1, task_id="load", map_index=index, state=None if index else "running")
    indexes = "allowed: 0 to 2, 5 (not scheduled: 1 to 2, 5, running: 0)"
    assert refusal("etl", "one", "load", 3) == f"--map-index: found 3; {indexes}"
    assert refusal("etl", "one", "load") == f"--map-index: found none; {indexes}"
    assert situation("load", "one", 5).task.map_index == 5


def test_the_only_instance_needs_no_map_index(tables: Tables) -> None:
    tables.tasks(1, task_id="plain")
    tables.tasks(1, task_id="mapped", map_index=0)
    assert (situation("plain").task.map_index, situation("mapped").task.map_index) == (-1, 0)
    assert refusal("etl", "one", "plain", 0) == (
        "--map-index: found 0; allowed: leave it out, plain is not mapped (yet)"
    )


# -- the task and its run ------------------------------------------------------------------------------


def test_a_task_is_read_with_what_it_asks_for(tables: Tables) -> None:
    tables.tasks(3, task_id="load", operator="RayTenantJobOperator", try_number=2, start_date=ago(5))
    task = situation().task
    assert (task.state, task.pool, task.slots, task.try_number) == ("scheduled", "ray.acme", 3, 2)
    assert (task.scheduled_at, task.started_at, task.ended_at) == (ago(60), ago(5), None)
    assert (task.is_ours, task.resumes, task.trigger_taken) == (True, False, None)


def test_a_deferred_task_tells_whether_a_triggerer_has_it(tables: Tables) -> None:
    for number, triggerer in ((1, None), (2, 9)):
        row = {"classpath": "x", "kwargs": "", "created_date": NOW, "triggerer_id": triggerer}
        put(tables, Base.metadata.tables["trigger"], id=number, **row)
    tables.tasks(1, task_id="free", state="deferred", trigger_id=1, next_method="execute_complete")
    tables.tasks(1, task_id="taken", state="deferred", trigger_id=2, next_method="execute_complete")
    tables.tasks(1, task_id="back", next_method="execute_complete")
    found = {name: situation(name).task for name in ("free", "taken", "back")}
    assert {name: (task.trigger_taken, task.resumes) for name, task in found.items()} == {
        "free": (False, False),
        "taken": (True, False),
        "back": (None, True),
    }


def test_runs_are_counted_as_the_scheduler_does_a_backfills_by_themselves(tables: Tables) -> None:
    tables.dag("etl", max_active_runs=3, is_paused=True)
    run = Base.metadata.tables["dag_run"]
    for name, state, backfill in (
        ("one", "queued", None),
        ("live1", "running", None),
        ("live2", "running", None),
        ("back1", "queued", 7),
        ("back2", "running", 7),
        ("other", "running", 8),
    ):
        tables.run("etl", name, None, state=state)
        tables.tasks(1, task_id="load", run=name, state=None)
        with tables.engine.begin() as connection:
            connection.execute(update(run).where(run.c.run_id == name).values(backfill_id=backfill))
    dates = {"from_date": DAY, "to_date": DAY, "created_at": DAY, "updated_at": DAY, "dag_run_conf": {}}
    put(
        tables,
        Backfill,
        id=7,
        dag_id="etl",
        max_active_runs=2,
        is_paused=True,
        reprocess_behavior="none",
        **dates,
    )
    live, back = situation().run, situation("load", "back1").run
    assert (live.state, live.runs, live.is_paused, live.is_gone) == ("queued", Runs(2, 3), True, False)
    assert back.runs == Runs(1, 2, backfill=7, backfill_paused=True)


def test_a_dag_without_a_file_is_gone(tables: Tables) -> None:
    tables.dag("etl", is_stale=True)
    tables.tasks(1, task_id="load")
    assert situation().run.is_gone


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_failure_is_read_however_often_airflow_encoded_it(tables: Tables, times: int) -> None:
    tables.tasks(1, task_id="load", state="failed")
    value: Any = {"error": "JobKilledError", "message": "m"}
    for _ in range(times):
        value = json.dumps(value)
    key = {"dag_run_id": 1, "dag_id": "etl", "run_id": "one", "task_id": "load", "map_index": -1}
    put(tables, XComModel, key="return_value", value="1", **key)
    put(tables, XComModel, key="raytenant_failure", value=value, **key)
    assert situation().failure == {"error": "JobKilledError", "message": "m"}


@pytest.mark.parametrize("value", ["no json", "[1]", None, 7])
def test_what_is_no_failure_is_none(tables: Tables, value: Any) -> None:
    tables.tasks(1, task_id="load", state="failed")
    key = {"dag_run_id": 1, "dag_id": "etl", "run_id": "one", "task_id": "load", "map_index": -1}
    put(tables, XComModel, key="raytenant_failure", value=value, **key)
    assert situation().failure is None


# -- out of the DAG ------------------------------------------------------------------------------------


def chain(**arguments: Any) -> DAG:
    """list >> extract >> [transform, check] >> load, of which the last is a tenant's."""
    with DAG("etl", schedule=None, start_date=DAY) as dag:
        first, second = Plain(task_id="list"), Plain(task_id="extract")
        (
            first
            >> second
            >> [Plain(task_id="transform"), Plain(task_id="check")]
            >> OfTenant(task_id="load", **arguments)
        )
    return dag


def test_what_comes_before_is_read_near_and_far(tables: Tables) -> None:
    tables.dag("etl")
    write_dag(tables, chain())
    tables.tasks(1, task_id="load", state=None)
    tables.tasks(1, task_id="transform", state=None)
    for index, state in enumerate(("running", "success", "success")):
        tables.tasks(1, task_id="extract", map_index=index, state=state)
    tables.tasks(1, task_id="list", state="success")
    tables.tasks(1, task_id="not_before", state="running")
    found = situation()
    assert found.upstream == (
        Upstream("transform", {"none": 1}),
        Upstream("extract", {"running": 1, "success": 2}, direct=False),
        Upstream("list", {"success": 1}, direct=False),
    )
    assert (found.task.is_ours, found.past) == (True, None)
    assert not situation("transform").task.is_ours


def test_depends_on_past_looks_at_the_run_before(tables: Tables) -> None:
    tables.dag("etl")
    write_dag(tables, chain(depends_on_past=True))
    tables.run("etl", "one", DAY + timedelta(days=2))
    tables.tasks(1, task_id="load", state=None)
    assert situation().past is None
    tables.run("etl", "older", DAY)
    tables.run("etl", "before", DAY + timedelta(days=1))
    tables.tasks(1, task_id="load", run="older", state="success")
    assert situation().past == Past("before", None)
    tables.tasks(1, task_id="load", run="before", state="failed")
    assert situation().past == Past("before", "failed")


def test_the_next_try_is_when_airflow_says(tables: Tables) -> None:
    tables.dag("etl")
    write_dag(tables, chain(retries=2, retry_delay=timedelta(seconds=250)))
    tables.tasks(1, task_id="load", state="up_for_retry", end_date=NOW)
    assert situation().task.retry_at == NOW + timedelta(seconds=250)


def test_a_dag_that_is_not_there_serialized_leaves_open_what_only_it_says(tables: Tables) -> None:
    tables.tasks(1, task_id="load", state="up_for_retry", end_date=NOW)
    tables.tasks(1, task_id="extract", state=None)
    assert situation().task.retry_at is None
    assert situation("extract").upstream == ()


# -- the line ------------------------------------------------------------------------------------------


def test_a_task_stands_in_the_schedulers_order(tables: Tables) -> None:
    tables.run("etl", "late", DAY + timedelta(days=1))
    tables.run("etl", "one", DAY)
    tables.tasks(5, run="late")
    tables.tasks(1, task_id="load", map_index=7)
    tables.tasks(2, map_index=2)
    tables.tasks(4, run="late", priority_weight=5)
    tables.tasks(3, pool="ray.globex", priority_weight=9)
    tables.tasks(3, state="running")
    found = situation()
    assert found.line == Line(3, 4, (4, 2), None, seen_before=3)
    assert found.pool is not None
    assert (found.pool.slots, found.pool.occupied, found.pool.is_ours) == (9, 3, True)
    assert found.executing == 1


def test_only_what_is_scheduled_stands_in_a_line(tables: Tables) -> None:
    tables.tasks(1, task_id="load", state="queued")
    assert situation().line is None


def test_what_the_dags_limit_holds_back_stands_in_no_place(tables: Tables) -> None:
    tables.dag("etl", max_active_tasks=3)
    tables.tasks(1, 1, state="running")
    tables.tasks(2, priority_weight=2)
    tables.tasks(1, task_id="load")
    assert situation().line == Line(None, 1, (), HeldBack("max_active_tasks", 2, 3))


def test_what_a_limit_of_its_own_holds_back_stands_in_no_place(tables: Tables) -> None:
    tables.tasks(1, task_id="load", map_index=0, state="deferred")
    tables.tasks(1, task_id="load", map_index=1)
    tables.tasks(1, task_id="load", map_index=2)
    limits = {("etl", "load"): TaskLimit(None, 2)}
    assert situation("load", "one", 1, limits).line == Line(1, 1, ())
    held = situation("load", "one", 2, limits).line
    assert held == Line(None, 1, (), HeldBack("max_active_tis_per_dagrun", 2, 2), seen_before=1)


def test_the_scheduler_looks_past_full_pools(tables: Tables) -> None:
    tables.tasks(9, pool="ray.globex", state="running")
    tables.tasks(1, 1, pool="ray.globex", priority_weight=9)
    tables.tasks(1, pool="default_pool", priority_weight=9)
    tables.tasks(1, task_id="load")
    line = situation().line
    assert line is not None
    assert line.seen_before == 1


def test_any_pool_has_a_line_and_one_that_is_not_there_has_none_to_give(tables: Tables) -> None:
    tables.tasks(1, pool="default_pool", priority_weight=2)
    tables.tasks(1, task_id="load", pool="default_pool")
    tables.tasks(1, task_id="lost", pool="ray.nobody")
    found, lost = situation(), situation("lost")
    assert (found.line, found.pool and found.pool.is_ours) == (Line(2, 2, (1,), None, 1), False)
    assert (lost.pool, lost.line) == (None, Line(1, 1))


def test_holders_are_those_of_the_pool_and_of_ours(tables: Tables) -> None:
    tables.tasks(4, task_id="a", state="running", queued_dttm=ago(9), map_index=2)
    tables.tasks(2, task_id="b", state="deferred", pool="ray.globex")
    tables.tasks(1, task_id="c", state="running", pool="default_pool")
    tables.tasks(1, task_id="load")
    tables.tasks(1, task_id="elsewhere", pool="default_pool")
    held = {holder.task: (holder.pool, holder.slots, holder.since) for holder in situation().holders}
    assert held == {"etl.a[2]": ("ray.acme", 4, ago(9)), "etl.b": ("ray.globex", 2, None)}
    assert "etl.c" in {holder.task for holder in situation("elsewhere").holders}
    assert UUID(situation().holders[0].ti_id)


def test_a_pool_that_does_not_count_deferred_tasks_is_not_held_by_them(tables: Tables) -> None:
    pools = Base.metadata.tables["slot_pool"]
    with tables.engine.begin() as connection:
        connection.execute(update(pools).where(pools.c.pool == "default_pool").values(include_deferred=False))
    tables.tasks(4, state="deferred", pool="default_pool")
    tables.tasks(1, state="running", pool="default_pool")
    tables.tasks(1, task_id="load", pool="default_pool")
    found = situation()
    assert found.pool is not None
    assert (found.pool.occupied, [holder.slots for holder in found.holders]) == (1, [1])


def test_nothing_is_written(tables: Tables, statements: list[str]) -> None:
    tables.dag("etl")
    write_dag(tables, chain(depends_on_past=True, retries=1))
    for state in ("scheduled", "deferred", "up_for_retry", "failed", None):
        tables.run("etl", str(state), None)
        tables.tasks(1, task_id="load", map_index=9, run=str(state), state=state, end_date=NOW)
        statements.clear()
        situation("load", str(state))
        assert statements
        assert all(statement.lstrip().startswith("SELECT") for statement in statements)
