"""One stack for all faults: real Airflow, Ray and PostgreSQL, with a proxy before Ray that breaks things."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from airflow_provider_raytenant.local.processes import scope_pids
from stack.deployment import ROOT, cluster_ray
from stack.stack import RaySize, Stack
from tests.faults.dags.fault_lanes import CAPACITY, COUNT_DIR, JOB, LANES
from tests.faults.world import World

HERE = Path(__file__).parent
TABLE = ROOT / ".run" / "faults.md"

# In this order: what ends Ray's head comes last.
ACTS = (
    "test_moments",
    "test_answers",
    "test_people",
    "test_workers",
    "test_triggerer_killed",
    "test_triggerer_paused",
    "test_scheduler",
    "test_ray_parts",
    "test_ray_dashboard",
    "test_ray_head_kept",
    "test_ray_head_lost",
)

MIB = 1024**2
CAPACITY_BYTES = CAPACITY * 64 * MIB
FAST = {
    "core.parallelism": "12",
    # A triggerer that shows no sign of life for so long loses its triggers to others.
    "triggerer.triggerer_health_check_threshold": "20",
    # By default it takes 30 s until a scheduler counts as gone, and 5 minutes until its tasks are looked for.
    "scheduler.scheduler_health_check_threshold": "15",
    "scheduler.orphaned_tasks_check_interval": "15",
    "dag_processor.min_file_process_interval": "300",
}
_WORLD = pytest.StashKey[World]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder that needs the stack is a fault test; the acts come in their order."""
    own = [item for item in items if item.path.is_relative_to(HERE) and item.path.stem in ACTS]
    for item in own:
        item.add_marker(pytest.mark.stack)
        item.add_marker(pytest.mark.fault)
        item.add_marker(pytest.mark.timeout(600))
    others = [item for item in items if item not in own]
    items[:] = [*others, *sorted(own, key=lambda item: ACTS.index(item.path.stem))]


def tenant_file(lanes: Sequence[str] = LANES) -> str:
    """A tenant and a cluster for each lane; all clusters are the same Ray behind other addresses."""
    group = "    groups: {cpu: {slot: {cpus: 1, memory: 64MiB}}}\n"
    lines = ["deployment: faults\n", "clusters:\n"]
    lines += [f"  {lane}:\n    ray_conn_id: ray_{_name(lane)}\n{group}" for lane in lanes]
    lines += ["tenants:\n"]
    lines += [f"  {lane}: {{cluster: {lane}, guarantee: 1}}\n" for lane in lanes]
    return "".join(lines)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[World]:
    """The running stack with pools synced and every DAG unpaused."""
    directory = tmp_path_factory.mktemp("faults")
    counts = directory / "counts"
    counts.mkdir()
    shutil.copytree(HERE / "dags", directory / "dags")
    (directory / "raytenant.yaml").write_text(tenant_file())

    def environment(stack: Stack) -> Mapping[str, str]:
        connections = {
            f"AIRFLOW_CONN_RAY_{_name(lane).upper()}": json.dumps(
                {"conn_type": "ray", "host": stack.proxy.address(lane)}
            )
            for lane in LANES
        }
        return {**connections, COUNT_DIR: str(counts), JOB: str(HERE / "counting_job.py")}

    storage = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(directory / "gcs")}
    with Stack(
        directory,
        directory / "dags",
        ray_binary=cluster_ray(),
        ray=RaySize(CAPACITY, CAPACITY_BYTES, head_cpus=1, env=storage),
        with_s3=False,
        fault_proxy=True,
        tenant_file=directory / "raytenant.yaml",
        airflow_config=FAST,
        airflow_env=environment,
        progress=print,
    ) as stack:
        stack.airflow.cli("raytenant", "pools", "sync")
        for dag_id in (*LANES, "deleted", "paused", "upstream", "worker", "full", "doomed"):
            stack.api.wait_dag(dag_id)
            stack.api.unpause(dag_id)
        seen = pytestconfig.stash[_WORLD] = World(stack, counts)
        yield seen
        seen.close()
    # Whatever was done to it, nothing of the stack is left behind.
    assert scope_pids(stack.scope) == []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table of all faults, and where it is written to."""
    world = config.stash.get(_WORLD, None)
    lines = world.report.text() if world else []
    if world and lines:
        world.report.write(TABLE)
        terminalreporter.section("faults")
        for line in [*lines, "", f"as Markdown: {TABLE}"]:
            terminalreporter.line(line)


def _name(lane: str) -> str:
    return lane.replace("-", "_")
