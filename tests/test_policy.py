"""The cluster policy on task instances as Airflow makes them."""

from __future__ import annotations

import ast
import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG, task_group
from airflow.serialization.definitions.baseoperator import SerializedBaseOperator
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.types import DagRunType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant import policy, tenant_file
from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Workers
from airflow_provider_raytenant.policy import task_instance_mutation_hook as hook
from airflow_provider_raytenant.priority import BEHIND
from tests.domain.helpers import seeded

LIVE, BACKFILL = "scheduled__2026-11-01T00:00:00+00:00", "backfill__2026-01-01T00:00:00+00:00"
TENANTS = """\
deployment: test
defaults: {cluster: shared}
clusters:
  shared:
    ray_conn_id: ray
    groups:
      cpu: {slot: {cpus: 1, memory: 1GiB}}
      gpu: {slot: {gpus: 1, cpus: 4, memory: 16GiB}}
tenants:
  acme: {backfill: {limit: {cpu: 6}}, large_from: 8}
  globex: {}
  initech: {backfill: {}}
  frozen: {backfill: {limit: 0}}
  bad: {backfill: {limit: many}}
"""


@pytest.fixture(autouse=True)
def tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "raytenant.yaml"
    file.write_text(TENANTS)
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", str(file))
    monkeypatch.setattr(policy, "_told", {})
    policy._known.cache_clear()
    return file


def instance(pool: str, slots: int = 1, run_id: str = BACKFILL) -> TaskInstance:
    """Of a task that is not mapped."""
    task = SerializedBaseOperator(task_id="t")
    task.pool, task.pool_slots = pool, slots
    return TaskInstance(task, dag_version_id=None, run_id=run_id)


def run(run_type: DagRunType, run_id: str = LIVE) -> DagRun:
    return DagRun(dag_id="etl", run_id=run_id, run_type=run_type)


@pytest.mark.parametrize(
    ("pool", "slots", "after"),
    [
        ("ray.acme", 1, "ray.acme.backfill"),
        ("ray.acme", 6, "ray.acme.backfill"),
        # Its limit could never hold it.
        ("ray.acme", 7, "ray.acme"),
        ("ray.acme.large", 4, "ray.acme.backfill"),
        ("ray.acme.large", 9, "ray.acme.large"),
        ("ray.acme.gpu", 9, "ray.acme.gpu.backfill"),
        ("ray.initech", 99, "ray.initech.backfill"),
        ("ray.initech.gpu", 1, "ray.initech.gpu.backfill"),
        ("ray.frozen", 1, "ray.frozen"),
        # Not enabled, or a pool that the tenant does not have.
        ("ray.globex", 1, "ray.globex"),
        ("ray.initech.large", 1, "ray.initech.large"),
        ("ray.acme.tpu", 1, "ray.acme.tpu"),
        # Moved before.
        ("ray.acme.backfill", 1, "ray.acme.backfill"),
        # Not ours.
        ("default_pool", 1, "default_pool"),
        ("ray", 1, "ray"),
        ("ray.", 1, "ray."),
        ("rays.acme", 1, "rays.acme"),
        ("ray.acme.backfill.backfill", 1, "ray.acme.backfill.backfill"),
        ("ray.umbrella", 1, "ray.umbrella"),
    ],
)
def test_where_a_backfills_task_goes(pool: str, slots: int, after: str) -> None:
    ti = instance(pool, slots)
    hook(ti, run(DagRunType.BACKFILL_JOB, BACKFILL))
    assert (ti.pool, ti.pool_slots) == (after, slots)
    hook(ti)
    assert ti.pool == after


def test_a_live_task_stays() -> None:
    ti = instance("ray.acme", run_id=LIVE)
    hook(ti)
    hook(ti, run(DagRunType.SCHEDULED))
    assert ti.pool == "ray.acme"


def test_a_reprocessed_run_is_a_backfills_by_its_type() -> None:
    ti = instance("ray.acme", run_id=LIVE)
    hook(ti, run(DagRunType.BACKFILL_JOB))
    assert ti.pool == "ray.acme.backfill"


# -- mapped tasks, through the serialized DAG ------------------------------------------------------


def mapped(expand: dict[str, Any] | list[dict[str, Any]], **partial: Any) -> list[TaskInstance]:
    """The instances of a mapped task in a live run, as Airflow makes them, the policy not called yet."""
    with DAG("etl", start_date=datetime(2026, 1, 1, tzinfo=UTC), default_args=partial.pop("dag", {})) as dag:
        known = {"task_id": "t", "tenant": "acme", **partial}
        plain = RayTenantJobOperator.partial(**known)
        if isinstance(expand, list):
            plain.expand_kwargs(expand)
        else:
            plain.expand(**expand)
    # As PostgreSQL gives it back: without the order of keys.
    data: Any = json.loads(json.dumps(DagSerialization.to_dict(dag), sort_keys=True))
    task = DagSerialization.from_dict(data).task_dict["t"]
    count = task.get_parse_time_mapped_ti_count()
    return [TaskInstance(task, dag_version_id=None, run_id=LIVE, map_index=n) for n in range(count)]


def sized(instances: list[TaskInstance], run_type: DagRunType = DagRunType.SCHEDULED) -> list[int]:
    for ti in instances * 2:  # Twice is as once.
        hook(ti, run(run_type))
    return [ti.pool_slots for ti in instances]


def test_mapped_tasks_take_the_slots_of_their_own_request() -> None:
    assert sized(mapped({"num_cpus": [1, 3, 0.5]}, pool_slots=4)) == [1, 3, 1]
    assert sized(mapped({"memory": ["1GiB", "3GiB"]}, pool_slots=4, workers=Workers(count=2))) == [3, 3]
    assert sized(mapped({"workers": [Workers(count=1), Workers(count=4)]}, pool_slots=7)) == [2, 5]
    assert sized(mapped([{"num_cpus": 2}, {"memory": "3GiB"}], pool_slots=4)) == [2, 3]


def test_default_args_that_decide_are_known() -> None:
    instances = mapped({"num_cpus": [1, 2]}, pool_slots=4, dag={"memory": "3GiB"})
    assert sized(instances) == [3, 3]
    instances = mapped({"num_cpus": [1, 2]}, pool_slots=4, default_args={"memory": "3GiB"})
    assert sized(instances) == [3, 3]


def test_what_was_declared_is_the_most_and_stays_where_the_own_request_is_not_readable() -> None:
    # The first is larger than declared: the task itself fails for it.
    assert sized(mapped({"num_cpus": [9, 1]}, pool_slots=4)) == [4, 1]
    assert sized(mapped({"entrypoint": ["a", "b"]}, pool_slots=4)) == [4, 4]
    assert sized(mapped({"num_cpus": [1, 2], "entrypoint": ["a", "b"]}, pool_slots=4)) == [4] * 4


def test_a_mapped_task_of_a_backfill_is_sized_and_then_moved() -> None:
    instances = mapped({"num_cpus": [1, 7]}, pool_slots=7)
    assert sized(instances, DagRunType.BACKFILL_JOB) == [1, 7]
    assert [ti.pool for ti in instances] == ["ray.acme.backfill", "ray.acme"]
    # The ids of the runs are live ones': a reprocessed run, of which the strategy could not know.
    assert [ti.priority_weight for ti in instances] == [1 - BEHIND, 1 - BEHIND]


def test_a_small_one_leaves_the_pool_that_the_largest_chose() -> None:
    instances = mapped({"num_cpus": [1, 9]}, pool_slots=9)
    for ti in instances:
        ti.task.partial_kwargs["pool"] = ti.pool = "ray.acme.large"  # type: ignore[union-attr]
    assert sized(instances) == [1, 9]
    assert [ti.pool for ti in instances] == ["ray.acme", "ray.acme.large"]


def test_a_task_in_a_mapped_group_keeps_its_slots() -> None:
    with DAG("etl", start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:

        @task_group
        def each(name: str) -> None:
            RayTenantJobOperator(task_id="t", tenant="acme", entrypoint=name, num_cpus=2)

        each.expand(name=["a", "b"])
    task = DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_dict["each.t"]
    assert sized([TaskInstance(task, dag_version_id=None, run_id=LIVE, map_index=0)]) == [2]


def test_a_task_instance_from_the_database_has_no_task_and_keeps_its_slots() -> None:
    (ti,) = mapped({"num_cpus": [1]}, pool_slots=4)
    ti.task = None
    assert sized([ti], DagRunType.BACKFILL_JOB) == [4]
    assert ti.pool == "ray.acme.backfill"


def test_the_task_itself_is_made_with_the_same_arguments_as_before() -> None:
    with DAG("etl", start_date=datetime(2026, 1, 1, tzinfo=UTC), default_args={"memory": "3GiB"}) as dag:
        RayTenantJobOperator.partial(
            task_id="t", tenant="acme", entrypoint="true", pool_slots=4, resources={"fpga": 1}
        ).expand(num_cpus=[1, 2])
    task: Any = dag.get_task("t").unmap({"num_cpus": 2})  # type: ignore[union-attr]
    footprint = task.sizing.placement.footprint
    assert (footprint.cpus, footprint.memory, footprint.custom) == (2, 3 * 2**30, {"fpga": 1})
    assert (task.pool, task.pool_slots, task.resources) == ("ray.acme", 4, None)


# -- trouble ---------------------------------------------------------------------------------------


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger=policy.__name__)
    return caplog


def warnings(lines: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in lines.records if record.name == policy.__name__]


def test_a_broken_file_is_one_warning_for_each_change(
    tenants: Path, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read = tenant_file._read

    def counted(file: str) -> Any:
        reads.append(file)
        return read(file)

    monkeypatch.setattr(tenant_file, "_read", counted)
    tenants.write_text("{")
    for _ in range(5):
        ti = instance("ray.acme")
        hook(ti)
        hook(instance("ray.initech"))
        assert ti.pool == "ray.acme"
    assert len(warnings(lines)) == 1
    assert "well-formed YAML" in warnings(lines)[0]
    # Once for each tenant, however many tasks there are.
    assert len(reads) == 2
    tenants.write_text("{{")
    hook(instance("ray.acme"))
    assert len(warnings(lines)) == 2
    tenants.write_text(TENANTS)
    ti = instance("ray.acme")
    hook(ti)
    assert (ti.pool, len(warnings(lines))) == ("ray.acme.backfill", 2)


@pytest.mark.parametrize("path", ["", "/no/such/file.yaml"])
def test_no_file_is_one_warning(
    path: str, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", path)
    for _ in range(3):
        ti = instance("ray.acme")
        hook(ti)
        assert ti.pool == "ray.acme"
    assert len(warnings(lines)) == 1


def test_another_tenants_mistake_is_none_and_a_strangers_pool_is_no_trouble(
    lines: pytest.LogCaptureFixture,
) -> None:
    ti = instance("ray.acme")
    hook(ti)
    hook(instance("ray.cluster-of-others"))
    assert (ti.pool, warnings(lines)) == ("ray.acme.backfill", [])
    hook(instance("ray.bad"))
    assert len(warnings(lines)) == 1


def test_what_goes_wrong_otherwise_is_told_once_and_leaves_the_task(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr(policy, "_apply", broken)
    for _ in range(3):
        ti = instance("ray.acme")
        hook(ti)
        assert ti.pool == "ray.acme"
    assert len(warnings(lines)) == 1
    assert lines.records[-1].exc_info is not None


def test_tasks_of_others_cost_no_look_at_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not(*arguments: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(policy, "_view", must_not)
    hook(instance("default_pool"))
    hook(instance("ray.acme", run_id=LIVE))


# -- rules -----------------------------------------------------------------------------------------

STATES: dict[str, str | None] = {
    "right": TENANTS,
    "broken": "tenants: [",
    "empty": "",
    "other": "tenants: {acme: 5, globex: {backfill: {}}}",
    "odd keys": "deployment: test\ndefaults: {cluster: a}\nclusters: {a: {}}\ntenants: {1: {}, acme: {}}",
    "gone": None,
}
PARTS = st.sampled_from(["ray", "acme", "globex", "initech", "bad", "cpu", "gpu", "large", "backfill", ""])
POOLS = st.lists(PARTS, max_size=6).map(".".join) | st.text(max_size=20).map("ray.{}".format) | st.text()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file for each state."""
    home = tmp_path_factory.mktemp("files")
    made = {name: home / f"{name}.yaml" for name in STATES}
    for name, text in STATES.items():
        if text is not None:
            made[name].write_text(text)
    return made


@settings(seeded, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pool=POOLS,
    slots=st.integers(-1, 30),
    state=st.sampled_from(sorted(STATES)),
    run_id=st.sampled_from([LIVE, BACKFILL]),
    run_type=st.sampled_from([None, *DagRunType]),
)
def test_it_never_raises_settles_at_once_and_stays_with_the_tenant(
    files: dict[str, Path], pool: str, slots: int, state: str, run_id: str, run_type: DagRunType | None
) -> None:
    dag_run = None if run_type is None else run(run_type, run_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", str(files[state]))
        ti = instance(pool, run_id=run_id)
        ti.pool_slots = slots
        hook(ti, dag_run)
        once = (ti.pool, ti.pool_slots)
        hook(ti, dag_run)
    assert (ti.pool, ti.pool_slots) == once
    assert ti.pool_slots == slots
    assert ti.pool == pool or (
        pool.split(".")[:2] == ti.pool.split(".")[:2]
        and ti.pool == f"{pool.removesuffix('.large')}.backfill"
        and state == "right"
    )


# -- cost ------------------------------------------------------------------------------------------


def test_importing_policy_and_plugin_loads_nothing_heavy() -> None:
    code = (
        "import airflow.plugins_manager, airflow.listeners, sys\n"
        "known = set(sys.modules)\n"
        "import airflow_provider_raytenant.policy, airflow_provider_raytenant.plugin\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - known}))\n"
        "print(sorted(name for name in set(sys.modules) - known if name.startswith('airflow_provider')))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    roots, own = done.stdout.splitlines()[-2:]
    assert not {"pydantic", "yaml", "sqlalchemy", "ray", "boto3", "aiohttp"} & set(ast.literal_eval(roots))
    assert ast.literal_eval(own) == [
        "airflow_provider_raytenant.links",
        "airflow_provider_raytenant.links.dashboard",
        "airflow_provider_raytenant.plugin",
        "airflow_provider_raytenant.plugin.reprocessed",
        "airflow_provider_raytenant.policy",
        "airflow_provider_raytenant.priority",
    ]
