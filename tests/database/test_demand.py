"""What waits for pools, out of real tables of Airflow's, in SQLite and in PostgreSQL."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_raytenant.database import demand as demand_module
from airflow_provider_raytenant.database.demand import TaskLimit, read_task_limits
from airflow_provider_raytenant.domain.demand import Demand
from tests.database.tables import DAY, NOW, Tables


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_what_is_scheduled_counts_by_pool_and_pools_of_others_do_not(tables: Tables) -> None:
    tables.tasks(3)
    tables.tasks(2, pool="ray.globex")
    tables.tasks(1, pool="default_pool")
    tables.tasks(1, pool="ray.of_nobody")
    for state in ("queued", "running", "deferred", "success", "up_for_retry", None):
        tables.tasks(5, state=state)
    assert tables.waiting() == {"ray.acme": (3,), "ray.globex": (2,)}


def test_nothing_waits_where_nothing_is_scheduled(tables: Tables) -> None:
    tables.tasks(3, state="running")
    assert tables.demand()["ray.acme"].waiting == ()
    assert "ray.globex" not in tables.demand()


def test_for_how_long_slots_have_been_held(tables: Tables) -> None:
    tables.tasks(3, state="running", queued_dttm=ago(20))
    tables.tasks(2, state="deferred", queued_dttm=ago(7200))
    tables.tasks(1, state="queued", queued_dttm=None)
    tables.tasks(4, state="success", queued_dttm=ago(50))
    tables.tasks(5, state="running", queued_dttm=ago(90), pool="ray.globex")
    tables.tasks(6)
    held = {pool: sorted(demand.held) for pool, demand in tables.demand().items()}
    assert held == {"ray.acme": [(1, 0.0), (2, 7200.0), (3, 20.0)], "ray.globex": [(5, 90.0)]}


def test_a_paused_dag_and_a_run_that_is_not_running_want_nothing(tables: Tables) -> None:
    tables.dag("paused", is_paused=True)
    tables.tasks(3, dag="paused")
    tables.run("etl", "over", DAY + timedelta(days=1), state="failed")
    tables.tasks(3, run="over")
    tables.run("etl", "queued", state="queued")
    tables.tasks(3, run="queued")
    assert tables.waiting() == {}


def test_the_order_is_the_schedulers(tables: Tables) -> None:
    tables.run("etl", "late", DAY + timedelta(days=1))
    tables.run("etl", "early", DAY)
    tables.tasks(1, run="late")
    tables.tasks(2, run="early", map_index=7)
    tables.tasks(3, run="early", map_index=2)
    tables.tasks(4, run="late", priority_weight=5)
    assert tables.waiting() == {"ray.acme": (4, 3, 2, 1)}


def test_a_run_wants_no_more_than_its_max_active_tasks_still_allow(tables: Tables) -> None:
    tables.dag("small", max_active_tasks=3)
    for number, run in enumerate(("one", "two", "three")):
        tables.run("small", run, DAY + timedelta(days=number))
        tables.tasks(*[number + 1] * 5, dag="small", run=run)
    # Deferred tasks do not count here, in whatever pool they are; running and queued ones do.
    tables.tasks(1, 1, dag="small", run="two", state="deferred")
    tables.tasks(1, 1, dag="small", run="two", state="running", pool="default_pool")
    tables.tasks(1, 1, 1, 1, dag="small", run="three", state="queued")
    assert tables.waiting() == {"ray.acme": (1, 1, 1, 2)}


def test_tasks_of_other_pools_hold_none_of_ours_back(tables: Tables) -> None:
    tables.dag("small", max_active_tasks=2)
    tables.tasks(1, 1, 1, dag="small", pool="default_pool", priority_weight=9)
    tables.tasks(4, 4, 4, dag="small")
    assert tables.waiting() == {"ray.acme": (4, 4)}


def test_limits_of_a_task_of_its_own_hold_it_back(tables: Tables) -> None:
    tables.run("etl", "two", DAY + timedelta(days=1))
    for index in range(3):
        tables.tasks(2, run="one", task_id="in_dag", map_index=index)
        tables.tasks(3, run="one", task_id="in_run", map_index=index)
        tables.tasks(5, run="two", task_id="in_run", map_index=index)
    tables.tasks(2, run="two", task_id="in_dag", state="deferred")
    tables.tasks(3, run="one", task_id="in_run", map_index=9, state="running")
    limits = {("etl", "in_dag"): TaskLimit(2, None), ("etl", "in_run"): TaskLimit(None, 2)}
    assert sorted(tables.waiting(limits)["ray.acme"]) == [2, 3, 5, 5]
    assert len(tables.waiting()["ray.acme"]) == 9


def test_limits_are_read_of_dags_that_have_them_alone(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.dag("limited", has_task_concurrency_limits=True)
    tables.dag("gone", has_task_concurrency_limits=True, is_stale=True)
    tables.dag("free")
    tasks = [
        {"__var": {"task_id": "plain", "max_active_tis_per_dag": 2}},
        {"__var": {"task_id": "mapped", "partial_kwargs": {"max_active_tis_per_dagrun": 3}}},
        {"__var": {"task_id": "free"}},
    ]
    asked = []

    def get(dag_id: str, session: Any) -> Any:
        asked.append(dag_id)
        return SimpleNamespace(data={"dag": {"tasks": tasks}})

    monkeypatch.setattr(demand_module.SerializedDagModel, "get", get)
    assert read_task_limits() == {
        ("limited", "plain"): TaskLimit(2, None),
        ("limited", "mapped"): TaskLimit(None, 3),
    }
    assert asked == ["limited"]


@pytest.mark.parametrize(
    ("active", "seconds"),
    [
        ([], 60),
        # The one before it started later than it became ready.
        ([{"queued_dttm": ago(20)}, {"queued_dttm": ago(40)}], 20),
        ([{"queued_dttm": ago(20), "state": "deferred"}], 20),
        # ... or earlier.
        ([{"queued_dttm": ago(90)}], 60),
        # A smaller one that comes after it went around it; an equal one cannot have done so.
        ([{"queued_dttm": ago(20), "run_id": "late", "pool_slots": 1}], 60),
        ([{"queued_dttm": ago(20), "run_id": "late", "pool_slots": 4}], 20),
        ([{"queued_dttm": ago(20), "priority_weight": 9, "pool_slots": 1}], 20),
        # Another pool's, and one that has ended, tell nothing.
        ([{"queued_dttm": ago(20), "pool": "ray.globex"}, {"queued_dttm": ago(20), "state": "success"}], 60),
    ],
)
def test_first_for_is_the_time_that_the_first_has_been_first(
    tables: Tables, active: list[dict[str, Any]], seconds: float
) -> None:
    tables.run("etl", "one", DAY)
    tables.run("etl", "late", DAY + timedelta(days=1))
    tables.tasks(4)
    tables.tasks(1, run="late", scheduled_dttm=ago(3600))
    for each in active:
        tables.tasks(4, **{"state": "running", **each})
    found = tables.demand()["ray.acme"]
    assert (found.waiting, found.first_for) == ((4, 1), seconds)


def test_a_task_without_times_is_first_since_now(tables: Tables) -> None:
    tables.tasks(4, scheduled_dttm=None)
    tables.tasks(4, state="queued")
    assert tables.demand()["ray.acme"] == Demand((4,), 0, held=((4, 0.0),))


def test_no_more_than_asked_for_are_read_of_each_pool(tables: Tables) -> None:
    for number in range(4):
        tables.tasks(number + 1, priority_weight=9 - number)
        tables.tasks(number + 1, priority_weight=9 - number, pool="ray.globex")
    assert tables.waiting(at_most=2) == {"ray.acme": (1, 2), "ray.globex": (1, 2)}


def test_ten_thousand_are_read_in_two_queries_and_none_writes(tables: Tables, statements: list[str]) -> None:
    tables.dag("wide", max_active_tasks=100_000)
    for _ in range(10):
        tables.tasks(*[1] * 1000, dag="wide")
    statements.clear()
    assert len(tables.waiting(at_most=64)["ray.acme"]) == 64
    assert len(statements) == 2
    assert all(statement.startswith("SELECT") for statement in statements)
