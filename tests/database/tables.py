"""Rows of Airflow's tables, for tests of what is read from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from airflow_provider_raytenant.database.demand import TaskLimit, read_demand
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_rows import MARK

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
DAY = datetime(2026, 11, 1, tzinfo=UTC)


class Tables:
    """Rows of Airflow's tables; every task waits for ``ray.acme`` since a minute if nothing else is said."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = itertools.count(1)
        self._known: set[tuple[str, ...]] = set()
        for name, mark in (("ray.acme", MARK), ("ray.globex", MARK), ("default_pool", "")):
            self._insert(Pool, pool=name, slots=9, description=f"{mark} for the tests", include_deferred=True)

    def _insert(self, model: Any, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(insert(model), values)

    def dag(self, dag_id: str, **values: Any) -> None:
        known: dict[str, Any] = {
            "dag_id": dag_id,
            "bundle_name": "dags",
            "is_paused": False,
            "is_stale": False,
            "max_active_tasks": 16,
            "max_consecutive_failed_dag_runs": 0,
            "has_task_concurrency_limits": False,
        }
        self._known.add((dag_id,))
        self._insert(DagModel, **{**known, **values})

    def run(
        self, dag_id: str, run_id: str, logical_date: datetime | None = DAY, state: str = "running"
    ) -> None:
        if (dag_id,) not in self._known:
            self.dag(dag_id)
        self._known.add((dag_id, run_id))
        self._insert(
            DagRun,
            id=next(self._numbers),
            dag_id=dag_id,
            run_id=run_id,
            run_type="scheduled",
            state=state,
            logical_date=logical_date,
            run_after=DAY,
        )

    def tasks(self, *slots: int, dag: str = "etl", run: str = "one", **values: Any) -> None:
        """A task instance for each number of slots."""
        if (dag, run) not in self._known:
            self.run(dag, run)
        known: dict[str, Any] = {
            "dag_id": dag,
            "run_id": run,
            "map_index": -1,
            "try_number": 1,
            "state": "scheduled",
            "pool": "ray.acme",
            "priority_weight": 1,
            "scheduled_dttm": NOW - timedelta(minutes=1),
            "queued_dttm": None,
            "span_status": "not_started",
        }
        rows = []
        for count in slots:
            number = next(self._numbers)
            own = {"id": UUID(int=number), "task_id": f"task{number}", "pool_slots": count}
            rows.append({**known, **own, **values})
        with self.engine.begin() as connection:
            connection.execute(insert(TaskInstance), rows)

    def demand(
        self, limits: Mapping[tuple[str, str], TaskLimit] | None = None, **more: Any
    ) -> dict[str, Demand]:
        with Session(self.engine) as session:
            return read_demand(session, limits, now=NOW, **more)

    def waiting(self, *arguments: Any, **more: Any) -> dict[str, tuple[int, ...]]:
        found = self.demand(*arguments, **more)
        return {name: demand.waiting for name, demand in found.items() if demand.waiting}
