"""Signs of life in a real table of Airflow's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow import settings
from airflow.jobs.job import Job
from airflow.models.base import Base
from airflow.utils.db import import_all_models
from sqlalchemy import create_engine, delete, insert, select, update
from sqlalchemy.engine import Engine
from sqlalchemy.orm import scoped_session, sessionmaker

from airflow_provider_raytenant.database import heartbeats
from airflow_provider_raytenant.database.heartbeats import (
    CONTROLLER,
    CONTROLLER_ONCE,
    SYNC,
    TRIGGERER,
    beat,
    end,
    note,
    read_heartbeats,
)
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    import_all_models()
    engine = create_engine(f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/airflow.db")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(tables: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    with tables.begin() as connection:
        connection.execute(delete(Job))
    monkeypatch.setattr(settings, "Session", scoped_session(sessionmaker(tables)))
    monkeypatch.setattr(heartbeats, "get_hostname", lambda: "host-a")
    return tables


def put(engine: Engine, job_type: str, state: str, seconds_ago: float) -> None:
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    row = {"job_type": job_type, "state": state, "hostname": "host-b", "latest_heartbeat": at}
    with engine.begin() as connection:
        connection.execute(insert(Job).values(**row))


def rows(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(Job.job_type, Job.state, Job.hostname)))


def age(engine: Engine, seconds: float) -> None:
    """Let everything have been so long ago."""
    with engine.begin() as connection:
        connection.execute(
            update(Job).values(latest_heartbeat=datetime.now(UTC) - timedelta(seconds=seconds))
        )


def test_a_controller_that_beats_again_keeps_its_row(engine: Engine) -> None:
    number = beat(None)
    age(engine, 100)
    assert read_heartbeats(CONTROLLER)[0].age > 99
    assert beat(number) == number
    assert rows(engine) == [(CONTROLLER, "running", "host-a")]
    found = read_heartbeats(CONTROLLER)
    assert [(one.hostname, one.running) for one in found] == [("host-a", True)]
    assert 0 <= found[0].age < 50


def test_two_controllers_have_a_row_each(engine: Engine) -> None:
    assert beat(None) != beat(None)
    assert len(read_heartbeats(CONTROLLER)) == 2


def test_a_row_that_was_cleaned_away_is_made_anew(engine: Engine) -> None:
    number = beat(None)
    with engine.begin() as connection:
        connection.execute(delete(Job))
    beat(number)
    assert rows(engine) == [(CONTROLLER, "running", "host-a")]


def test_a_controller_that_ends_says_so(engine: Engine) -> None:
    end(beat(None))
    assert rows(engine) == [(CONTROLLER, "success", "host-a")]
    assert [one.running for one in read_heartbeats(CONTROLLER)] == [False]


def test_single_rounds_share_a_row_a_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    note(CONTROLLER_ONCE)
    age(engine, 100)
    note(CONTROLLER_ONCE)
    assert rows(engine) == [(CONTROLLER_ONCE, "success", "host-a")]
    assert read_heartbeats(CONTROLLER_ONCE)[0].age < 50
    monkeypatch.setattr(heartbeats, "get_hostname", lambda: "host-c")
    note(CONTROLLER_ONCE)
    assert len(read_heartbeats(CONTROLLER_ONCE)) == 2
    assert read_heartbeats(CONTROLLER) == []


def test_types_are_told_apart_and_what_is_older_than_a_week_is_forgotten(engine: Engine) -> None:
    put(engine, TRIGGERER, "running", 10)
    put(engine, TRIGGERER, "failed", 20)
    put(engine, "SchedulerJob", "running", 10)
    put(engine, TRIGGERER, "running", 8 * 86400)
    found = read_heartbeats(TRIGGERER)
    assert sorted((one.running, round(one.age)) for one in found) == [(False, 20), (True, 10)]


def test_a_database_that_is_away_is_an_error_of_ours(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = create_engine(f"sqlite:///{tmp_path}/no/such/folder.db")
    monkeypatch.setattr(settings, "Session", scoped_session(sessionmaker(gone)))
    for call in (lambda: beat(None), lambda: note(SYNC), lambda: end(1), lambda: read_heartbeats(TRIGGERER)):
        with pytest.raises(DatabaseUnavailableError):
            call()
