"""The scheduler's listener, on made-up runs: ``tests/test_backfill_runs.py`` has real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow import settings
from airflow.listeners.listener import get_listener_manager
from airflow.task.priority_strategy import PriorityWeightStrategy

from airflow_provider_raytenant.plugin import reprocessed
from airflow_provider_raytenant.plugin.reprocessed import on_dag_run_running
from airflow_provider_raytenant.priority import BEHIND, LiveFirstAbsolute


class Own(PriorityWeightStrategy):
    def get_weight(self, ti: Any) -> int:
        return 7


TASKS = {
    "ours": SimpleNamespace(weight_rule=LiveFirstAbsolute()),
    "own rule": SimpleNamespace(weight_rule=Own()),
}


def ti(task_id: str = "ours", **more: Any) -> Any:
    known = {"task_id": task_id, "state": None, "pool": "ray.acme", "priority_weight": 5}
    return SimpleNamespace(**{**known, **more})


class Run:
    def __init__(self, *instances: Any, run_type: str = "backfill", run_id: str = "scheduled__1") -> None:
        self.run_type, self.run_id = run_type, run_id
        self.looks = 0
        self._instances = list(instances)

    def get_dag(self) -> Any:
        return SimpleNamespace(task_dict=TASKS)

    @property
    def task_instances(self) -> list[Any]:
        self.looks += 1
        return self._instances


def started(*instances: Any, **more: Any) -> Run:
    run: Any = Run(*instances, **more)
    on_dag_run_running(run, "started")
    return run


def test_tasks_of_a_reprocessed_run_are_put_behind_once() -> None:
    one = ti()
    run: Any = started(one)
    on_dag_run_running(run, "started again, after a clear")
    assert one.priority_weight == 5 - BEHIND


@pytest.mark.parametrize(
    "left",
    [
        ti("own rule"),
        ti("gone from the DAG"),
        ti(pool="default_pool"),
        ti(state="success"),
        ti(state="running"),
        ti(priority_weight=None),
    ],
)
def test_what_is_left_alone(left: Any) -> None:
    before = left.priority_weight
    started(left)
    assert left.priority_weight == before


def test_other_runs_are_not_even_looked_at() -> None:
    assert started(ti(), run_type="scheduled").looks == 0
    assert started(ti(), run_type="manual").looks == 0
    # It was made by a backfill, which everybody can see.
    assert started(ti(), run_id="backfill__1").looks == 0


def test_the_policy_of_the_deployment_looks_again_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def policy(task_instance: Any, dag_run: Any = None) -> None:
        seen.append((task_instance, dag_run))

    monkeypatch.setattr(settings, "task_instance_mutation_hook", policy)
    one, done, others = ti(), ti(state="success"), ti(pool="default_pool")
    run = started(one, done, others)
    assert seen == [(one, run)]


def test_it_is_named_to_airflow() -> None:
    assert reprocessed in get_listener_manager().pm.get_plugins()
