"""A real table of Airflow's, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow import settings
from airflow.models.base import Base
from airflow.utils.db import import_all_models
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.orm import scoped_session, sessionmaker

from stack.postgres import Postgres
from tests.database.tables import Tables


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.stack)])
def airflow_tables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A database with Airflow's tables; what rows refer to need not be there."""
    directory = tmp_path_factory.mktemp(str(request.param))
    if request.param == "sqlite":
        yield from _with_tables(create_engine(f"sqlite:///{directory}/airflow.db"))
        return
    with Postgres.start(directory) as postgres:
        alone = {"options": "-c session_replication_role=replica"}
        yield from _with_tables(create_engine(postgres.url, connect_args=alone))


def _with_tables(engine: Engine) -> Iterator[Engine]:
    import_all_models()
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(airflow_tables: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The database without a row; Airflow takes it for its own."""
    with airflow_tables.begin() as connection:
        for table in ("task_instance", "dag_run", "dag", "slot_pool"):
            connection.execute(Base.metadata.tables[table].delete())
    monkeypatch.setattr(settings, "Session", scoped_session(sessionmaker(airflow_tables)))
    return airflow_tables


@pytest.fixture
def statements(engine: Engine) -> Iterator[list[str]]:
    """What is said to the database."""
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


@pytest.fixture
def tables(engine: Engine) -> Tables:
    """Three pools, of which the last is not ours, and nothing else."""
    return Tables(engine)
