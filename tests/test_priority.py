"""What tasks weigh in live runs and in backfills, after the way through the serialized DAG."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow import plugins_manager
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG
from airflow.serialization.definitions.dag import SerializedDAG
from airflow.serialization.serialized_objects import DagSerialization
from airflow.task.priority_strategy import (
    PriorityWeightStrategy,
    _AbsolutePriorityWeightStrategy,
    _UpstreamPriorityWeightStrategy,
)
from airflow.task.weight_rule import WeightRule
from airflow.utils.types import DagRunType
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.operators.job import RayTenantJobOperator
from airflow_provider_raytenant.plugin import RayTenantPlugin
from airflow_provider_raytenant.priority import BEHIND, LOWEST, STRATEGIES, demoted, is_backfill, live_first
from tests.domain.helpers import seeded

LIVE, BACKFILL = "scheduled__2026-11-01T00:00:00+00:00", "backfill__2026-01-01T00:00:00+00:00"
ABSOLUTE, DOWNSTREAM, UPSTREAM = (f"airflow_provider_raytenant.priority.{s.__name__}" for s in STRATEGIES)


class Always7(PriorityWeightStrategy):
    def get_weight(self, ti: Any) -> int:
        return 7


@pytest.fixture(autouse=True)
def tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "raytenant.yaml"
    file.write_text(
        "deployment: test\n"
        "clusters: {shared: {ray_conn_id: ray, groups: {cpu: {slot: {cpus: 1, memory: 1GiB}}}}}\n"
        "tenants: {acme: {cluster: shared}}\n"
    )
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", str(file))


@pytest.fixture
def always_7(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy of the author's, registered as his plugin would."""
    known = plugins_manager.get_priority_weight_strategy_plugins()
    more = {f"{Always7.__module__}.Always7": Always7}
    monkeypatch.setattr(plugins_manager, "get_priority_weight_strategy_plugins", lambda: {**known, **more})


def make(**arguments: Any) -> DAG:
    """``first`` (weight 5) before ``plain`` (3) and ``mapped`` (2), and ``last`` (1) after both."""
    with DAG("etl", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule="@daily") as dag:
        common: Any = {"tenant": "acme", "entrypoint": "true", **arguments}
        first = RayTenantJobOperator(task_id="first", priority_weight=5, **common)
        plain = RayTenantJobOperator(task_id="plain", priority_weight=3, **common)
        mapped = RayTenantJobOperator.partial(task_id="mapped", priority_weight=2, **common)
        last = RayTenantJobOperator(task_id="last", **common)
        first >> [plain, mapped.expand(env_vars=[{"A": "1"}, {"A": "2"}])] >> last
    return dag


def as_the_scheduler_has_it(dag: DAG) -> SerializedDAG:
    data: Any = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    return DagSerialization.from_dict(data)


def weights(dag: SerializedDAG, run_id: str) -> dict[str, int | None]:
    """From a task instance, and from what is written in bulk: both have to agree."""
    run = DagRun(dag_id="etl", run_id=run_id)
    found = {}
    for name, task in dag.task_dict.items():
        ti = TaskInstance(task, dag_version_id=None, run_id=run_id, map_index=0 if name == "mapped" else -1)
        row = TaskInstance.insert_mapping(run_id, task, ti.map_index, dag_version_id=None, dag_run=run)
        assert row["priority_weight"] == ti.priority_weight
        found[name] = ti.priority_weight
    return found


RULES = [
    ({}, {"first": 11, "plain": 4, "mapped": 3, "last": 1}),
    ({"weight_rule": "downstream"}, {"first": 11, "plain": 4, "mapped": 3, "last": 1}),
    ({"weight_rule": WeightRule.UPSTREAM}, {"first": 5, "plain": 8, "mapped": 7, "last": 11}),
    ({"weight_rule": "absolute"}, {"first": 5, "plain": 3, "mapped": 2, "last": 1}),
    ({"weight_rule": _AbsolutePriorityWeightStrategy()}, {"first": 5, "plain": 3, "mapped": 2, "last": 1}),
    ({"default_args": {"weight_rule": "absolute"}}, {"first": 5, "plain": 3, "mapped": 2, "last": 1}),
]


@pytest.mark.parametrize(("arguments", "live"), RULES)
def test_the_authors_rule_holds_for_live_runs_and_a_backfill_is_behind_in_the_same_order(
    arguments: dict[str, Any], live: dict[str, int]
) -> None:
    dag = as_the_scheduler_has_it(make(**arguments))
    assert weights(dag, LIVE) == live
    assert weights(dag, "manual__2026-11-01T00:00:00+00:00") == live
    assert weights(dag, BACKFILL) == {name: weight - BEHIND for name, weight in live.items()}


def test_default_args_of_the_dag_reach_mapped_tasks_too() -> None:
    with DAG("etl", default_args={"weight_rule": "absolute", "priority_weight": 9}) as dag:
        mapped = RayTenantJobOperator.partial(task_id="mapped", tenant="acme").expand(entrypoint=["a", "b"])
        mapped >> RayTenantJobOperator(task_id="last", tenant="acme", entrypoint="true")
    assert weights(as_the_scheduler_has_it(dag), LIVE) == {"mapped": 9, "last": 9}
    assert weights(as_the_scheduler_has_it(dag), BACKFILL) == {"mapped": 9 - BEHIND, "last": 9 - BEHIND}


@pytest.mark.usefixtures("always_7")
def test_a_strategy_of_the_authors_own_is_left_alone() -> None:
    with DAG("etl") as dag:
        RayTenantJobOperator(task_id="own", tenant="acme", entrypoint="true", weight_rule=Always7())
        RayTenantJobOperator.partial(
            task_id="mapped", tenant="acme", weight_rule=f"{Always7.__module__}.Always7"
        ).expand(entrypoint=["a"])
    assert weights(as_the_scheduler_has_it(dag), BACKFILL) == {"own": 7, "mapped": 7}


def test_the_strategies_are_named_to_airflow_and_found_by_it() -> None:
    assert RayTenantPlugin.priority_weight_strategies == list(STRATEGIES)
    # From the entry point of the installed package, as every component has it.
    assert {ABSOLUTE, DOWNSTREAM, UPSTREAM} <= set(plugins_manager.get_priority_weight_strategy_plugins())


def test_where_the_plugin_is_missing_the_dag_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = DagSerialization.to_dict(make())
    monkeypatch.setattr(plugins_manager, "get_priority_weight_strategy_plugins", dict)
    with pytest.raises(Exception, match="etl") as error:
        DagSerialization.from_dict(data)
    assert DOWNSTREAM in str(error.value.__cause__)


@pytest.mark.parametrize(
    ("rule", "ours"),
    [
        ("absolute", ABSOLUTE),
        (WeightRule.DOWNSTREAM, DOWNSTREAM),
        (None, DOWNSTREAM),
        (_UpstreamPriorityWeightStrategy(), UPSTREAM),
        ("airflow.task.priority_strategy._UpstreamPriorityWeightStrategy", UPSTREAM),
        (UPSTREAM, UPSTREAM),
        ("acme.Own", "acme.Own"),
        ("no such rule", "no such rule"),
        (5, 5),
    ],
)
def test_which_rules_are_replaced(rule: Any, ours: Any) -> None:
    assert live_first(rule) == ours
    assert live_first(live_first(rule)) == ours


def test_a_rule_that_airflow_does_not_know_fails_as_it_does_without_us() -> None:
    with DAG("etl") as dag:
        RayTenantJobOperator(task_id="t", tenant="acme", entrypoint="true", weight_rule="heaviest")
    with pytest.raises(Exception, match="etl") as error:
        DagSerialization.to_dict(dag)
    assert "heaviest" in str(error.value.__cause__)


def test_a_reprocessed_run_is_known_by_its_type_where_the_type_is_at_hand() -> None:
    task = as_the_scheduler_has_it(make()).task_dict["plain"]
    ti = TaskInstance(task, dag_version_id=None, run_id=LIVE)
    reprocessed = DagRun(dag_id="etl", run_id=LIVE, run_type=DagRunType.BACKFILL_JOB)
    live = DagRun(dag_id="etl", run_id=LIVE, run_type=DagRunType.SCHEDULED)
    assert (is_backfill(ti), is_backfill(ti, live), is_backfill(ti, reprocessed)) == (False, False, True)
    ti.dag_run = reprocessed
    ti.refresh_from_task(task)
    assert ti.priority_weight == 4 - BEHIND


def test_a_task_instance_without_a_run_is_live() -> None:
    assert not is_backfill(SimpleNamespace(run_id=None))  # type: ignore[arg-type]


@seeded
@given(st.integers(-(2**31), 2**31 - 1))
def test_a_lowered_weight_fits_the_column(weight: int) -> None:
    assert LOWEST <= demoted(weight) <= weight


@seeded
@given(st.integers(-(2**31), BEHIND // 2 - 1))
def test_a_weight_is_lowered_once(weight: int) -> None:
    assert demoted(demoted(weight)) == demoted(weight)


@seeded
@given(st.integers(-400_000_000, 400_000_000), st.integers(-400_000_000, 400_000_000))
def test_every_live_task_of_a_sane_weight_goes_before_every_backfill(live: int, backfill: int) -> None:
    assert demoted(backfill) < live
    assert demoted(demoted(backfill)) == demoted(backfill) == backfill - BEHIND
