"""States of task instances out of a real table of Airflow's, in SQLite and in PostgreSQL."""

from __future__ import annotations

from uuid import UUID

import pytest
from airflow import settings
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import create_engine, insert
from sqlalchemy.engine import Engine
from sqlalchemy.orm import scoped_session, sessionmaker

from airflow_provider_raytenant.database import tasks as tasks_module
from airflow_provider_raytenant.database.session import ask_database
from airflow_provider_raytenant.database.tasks import read_tasks
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.job_spec import TryIdentity
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.sweep import OwnJob, TaskNow
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError


def identity(number: int, try_number: int = 1, map_index: int = -1) -> TryIdentity:
    ti_id = str(UUID(int=number * 100 + try_number * 10 + map_index + 1))
    return TryIdentity("prod", "acme", "dag", f"run{number}", "task", map_index, try_number, ti_id)


def job(own: TryIdentity) -> OwnJob:
    return OwnJob(JobInfo(own.submission_id, JobStatus.RUNNING, metadata=own.metadata()), own)


def put(engine: Engine, *tries: tuple[TryIdentity, str | None]) -> None:
    rows = [
        {
            "id": UUID(own.ti_id),
            "dag_id": own.dag_id,
            "run_id": own.run_id,
            "task_id": own.task_id,
            "map_index": own.map_index,
            "try_number": own.try_number,
            "state": state,
            "pool": "ray.acme",
            "pool_slots": 1,
            "span_status": "not_started",
        }
        for own, state in tries
    ]
    with engine.begin() as connection:
        connection.execute(insert(TaskInstance), rows)


def test_a_try_is_found_by_its_uuid_and_a_superseded_one_by_its_task(engine: Engine) -> None:
    put(
        engine,
        (identity(1), "deferred"),
        (identity(2, try_number=2), None),
        (identity(3, map_index=0), "running"),
        (identity(3, map_index=1, try_number=2), "failed"),
    )
    one, old, mapped, vanished = identity(1), identity(2), identity(3, map_index=0), identity(4)
    found = read_tasks([job(one), job(old), job(mapped), job(vanished)])

    assert found.by_id[one.ti_id] == TaskNow(one.ti_id, "deferred", 1, "ray.acme")
    assert old.ti_id not in found.by_id
    assert found.by_key[job(old).key] == TaskNow(identity(2, try_number=2).ti_id, None, 2, "ray.acme")
    assert found.by_id[mapped.ti_id].state == "running"
    assert vanished.ti_id not in found.by_id
    assert job(vanished).key not in found.by_key


def test_many_are_read_in_few_queries_and_none_writes(engine: Engine, statements: list[str]) -> None:
    count = 2 * tasks_module.CHUNK + 1
    put(engine, *((identity(number, try_number=1 + number % 2), "running") for number in range(count)))
    statements.clear()
    found = read_tasks([job(identity(number)) for number in range(count)])
    assert len(found.by_key) == count
    # Three for the UUIDs, one for the half that was superseded.
    assert len(statements) == 4
    assert all(statement.startswith("SELECT") for statement in statements)


def test_no_job_is_no_query(engine: Engine, statements: list[str]) -> None:
    statements.clear()
    assert read_tasks([]).by_id == {}
    assert statements == []


def test_trouble_is_one_short_line_of_our_tree(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_database()
    empty = create_engine("sqlite://")
    monkeypatch.setattr(settings, "Session", scoped_session(sessionmaker(empty)))
    with pytest.raises(DatabaseUnavailableError) as error:
        read_tasks([job(identity(1))])
    assert str(error.value) == "Airflow's database: no such table: task_instance"


def test_a_database_that_is_away_is_one_short_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 9 of loopback: nobody listens there.
    away = create_engine("postgresql+psycopg2://airflow:a-secret@127.0.0.1:9/airflow")
    monkeypatch.setattr(settings, "Session", scoped_session(sessionmaker(away)))
    with pytest.raises(DatabaseUnavailableError, match="Connection refused") as error:
        ask_database()
    assert "\n" not in str(error.value)
    assert "a-secret" not in str(error.value)
