"""Tries out of real tables of Airflow's, in SQLite and in PostgreSQL."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from airflow import settings
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.models.xcom import XComModel
from sqlalchemy import Engine, create_engine, delete, insert
from sqlalchemy.orm import scoped_session, sessionmaker

from airflow_provider_raytenant.database import usage as module
from airflow_provider_raytenant.database.usage import read_tries
from airflow_provider_raytenant.domain.usage_report import Span, Try
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError
from tests.database.tables import NOW, Tables

POOLS = ("ray.acme", "ray.globex")
SPAN = Span(NOW - timedelta(hours=1), NOW)
USAGE = {"submission_id": "j", "peak": {"cpus": 2.0}, "declared": {"cpus": 4.0}, "run_seconds": 1.25}

_NUMBERS = itertools.count(1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.fixture(autouse=True)
def nothing_else(engine: Engine) -> None:
    with engine.begin() as connection:
        for model in (TaskInstanceHistory, XComModel):
            connection.execute(delete(model))


TIMES = {
    "scheduled_dttm": ago(100),
    "queued_dttm": ago(90),
    "start_date": ago(80),
    "end_date": ago(20),
}
"""Of a try that has ended."""


def now(tables: Tables, task: str, state: str | None, **more: Any) -> None:
    """The row of a task."""
    tables.tasks(1, task_id=task, state=state, **{**TIMES, **more})


def before(tables: Tables, task: str, **more: Any) -> None:
    """An earlier try of a task."""
    known = {"dag_id": "etl", "task_id": task, "run_id": "one", "map_index": -1, "try_number": 1}
    kept = {"state": "failed", "pool": "ray.acme", "pool_slots": 1, "span_status": "not_started"}
    own = {"task_instance_id": UUID(int=10**6 + next(_NUMBERS)), **TIMES}
    with tables.engine.begin() as connection:
        connection.execute(insert(TaskInstanceHistory), {**known, **kept, **own, **more})


def xcom(tables: Tables, task: str, key: str, value: Any, map_index: int = -1) -> None:
    row = {"dag_id": "etl", "task_id": task, "run_id": "one", "map_index": map_index, "timestamp": ago(20)}
    with tables.engine.begin() as connection:
        connection.execute(insert(XComModel), {**row, "dag_run_id": 1, "key": key, "value": value})


def found(span: Span = SPAN) -> dict[str, Try]:
    """By task; none may come twice."""
    tries = list(read_tries(POOLS, span))
    assert len({one.task_id for one in tries}) == len(tries)
    return {one.task_id: one for one in tries}


def test_what_a_try_says_of_itself_comes_as_it_is(tables: Tables) -> None:
    now(tables, "load", "success", pool="ray.globex", pool_slots=7)
    xcom(tables, "load", "raytenant_usage", USAGE)
    (one,) = read_tries(POOLS, SPAN)
    assert one == Try("ray.globex", 7, "etl", "load", ago(100), ago(90), ago(80), ago(20), USAGE)


def test_pools_of_others_and_what_ended_before_the_span_are_left_out(tables: Tables) -> None:
    now(tables, "other", "success", pool="default_pool")
    now(tables, "early", "success", end_date=ago(3601))
    now(tables, "late", "success", end_date=ago(3599))
    before(tables, "other_before", pool="default_pool")
    before(tables, "early_before", end_date=ago(3601))
    before(tables, "late_before", end_date=ago(3599))
    assert set(found()) == {"late", "late_before"}


@pytest.mark.parametrize("state", ["running", "deferred"])
def test_what_runs_has_no_end_however_long_ago_it_began(tables: Tables, state: str) -> None:
    now(tables, "load", state, queued_dttm=ago(10**6), start_date=ago(10**6 - 9), end_date=None)
    one = found()["load"]
    assert (one.queued, one.started, one.ended) == (ago(10**6), ago(10**6 - 9), None)


@pytest.mark.parametrize("state", [None, "scheduled", "up_for_retry", "restarting"])
def test_a_row_that_waits_for_its_next_try_tells_of_none(tables: Tables, state: str | None) -> None:
    now(tables, "load", state)
    assert found() == {}


def test_a_retry_that_just_got_its_slots_has_nothing_of_the_try_before(tables: Tables) -> None:
    now(tables, "load", "queued", try_number=2, scheduled_dttm=ago(15), queued_dttm=ago(10))
    xcom(tables, "load", "raytenant_usage", USAGE)
    one = found()["load"]
    assert one == Try("ray.acme", 1, "etl", "load", ago(15), ago(10), None, None, None)


@pytest.mark.parametrize("state", ["scheduled", "queued"])
def test_a_task_that_comes_back_from_its_deferral_keeps_its_start(tables: Tables, state: str) -> None:
    now(tables, "load", state, scheduled_dttm=ago(15), next_method="execute_complete", end_date=None)
    one = found()["load"]
    assert (one.scheduled, one.started, one.ended) == (ago(15), ago(80), None)


def test_each_try_counts_once(tables: Tables) -> None:
    now(tables, "load", "success", try_number=3, start_date=ago(30))
    for number in (1, 2):
        before(tables, "load", try_number=number)
    assert sorted(one.started or NOW for one in read_tries(POOLS, SPAN)) == [ago(80), ago(80), ago(30)]


@pytest.mark.parametrize("state", ["up_for_retry", "failed", "upstream_failed", "skipped"])
def test_a_row_that_is_in_the_history_already_does_not_count_again(tables: Tables, state: str) -> None:
    now(tables, "load", state, start_date=ago(30))
    before(tables, "load")
    assert found()["load"].started == ago(80)


def test_the_xcom_is_of_the_newest_try_of_its_own_map_index(tables: Tables) -> None:
    for index in (0, 1):
        now(tables, "load", "success", map_index=index, try_number=2, pool_slots=1 + index)
    before(tables, "load", map_index=1, pool_slots=9)
    xcom(tables, "load", "return_value", {"rows": 3}, map_index=1)
    xcom(tables, "load", "raytenant_usage", USAGE, map_index=1)
    xcom(tables, "other", "raytenant_usage", {"run_seconds": 7}, map_index=1)
    assert sorted((one.slots, one.usage) for one in read_tries(POOLS, SPAN)) == [
        (1, None),
        (2, USAGE),
        (9, None),
    ]


def test_many_come_page_by_page_out_of_one_statement_that_writes_nothing(
    tables: Tables, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 10)
    tables.tasks(*range(1, 36), state="success", **TIMES)
    for number in range(36, 41):
        before(tables, f"before{number}", pool_slots=number)
    statements.clear()
    assert sorted(one.slots for one in read_tries(POOLS, SPAN)) == [*range(1, 41)]
    assert len(statements) == 1
    assert statements[0].startswith("SELECT")


def test_who_stops_reading_leaves_no_connection_behind(tables: Tables) -> None:
    tables.tasks(*[1] * 20, state="success", **TIMES)
    reading = iter(read_tries(POOLS, SPAN))
    next(reading)
    assert tables.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    reading.close()  # type: ignore[attr-defined]
    assert tables.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_database_that_is_away_is_an_error_of_ours(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = create_engine(f"sqlite:///{tmp_path}/no/such/folder.db")
    monkeypatch.setattr(settings, "Session", scoped_session(sessionmaker(gone)))
    with pytest.raises(DatabaseUnavailableError):
        list(read_tries(POOLS, SPAN))
