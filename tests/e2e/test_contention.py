"""Three tenants, more work than slots, a node that comes and goes, and a large task among small ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_raytenant.local.errors import NotReady, ServiceDied
from airflow_provider_raytenant.local.ray_node import RayNode
from stack.stack import Stack
from stack.usage import Sample, UsageSampler
from tests.e2e.conftest import CAPACITY
from tests.e2e.runs import controller, finish, start, until

TENANTS = ("acme", "globex", "initech")
MORE = 6
"""Slots of the node that comes later."""

ENOUGH = 5
"""Small tasks that start after the large one, though they were ready before it."""

CALM_WITHIN = 40.0
"""Seconds to wait for a moment in which no job starts."""

SEEN_WITHIN = 20.0
"""Seconds in which a lost node may still be counted on: Ray's dashboard and the controller have to see it."""


@dataclass
class Watch:
    """The cluster's own slots at each sample of what is in use."""

    stack: Stack
    usage: UsageSampler = field(init=False)
    capacities: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.usage = UsageSampler(self.stack.ray, on_sample=self._look)

    def _look(self, sample: Sample) -> None:
        nodes = self.stack.ray.alive_nodes().values()
        slots = sum(int(node["resources_total"].get("CPU", 0)) for node in nodes)
        self.capacities.append((sample.seconds, slots))

    @property
    def in_use(self) -> int:
        return self.usage.samples[-1].slots if self.usage.samples else 0

    def none_starts(self) -> bool:
        return all(job["status"] != "PENDING" for job in self.stack.ray.api("GET", "/api/jobs/"))

    def small_ones_run_on(self, node_id: str) -> bool:
        """The large one does not: should it have come so far, it is not to lose its node."""
        jobs = self.stack.ray.api("GET", "/api/jobs/")
        live = [job for job in jobs if job["status"] in ("PENDING", "RUNNING") and job["metadata"]]
        tasks = {job["metadata"].get("raytenant.task_id") for job in live}
        return "large" not in tasks and any(job.get("driver_node_id") == node_id for job in live)

    def capacity_at(self, seconds: float) -> int:
        """The most that was there shortly before."""
        return max(slots for at, slots in self.capacities if seconds - SEEN_WITHIN <= at <= seconds + 1)


@dataclass(frozen=True)
class Crowded:
    """What was seen: samples, and the task instances of all runs once these had ended."""

    watch: Watch
    states: dict[str, str]
    tasks: list[dict[str, Any]]


def _after_the_large(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Small ones that started after the large one, in their first try: they were ready before it."""
    (large,) = [task for task in tasks if task["task_id"] == "large"]
    if large["start_date"] is None:
        return []
    first = [task for task in tasks if task["try_number"] <= 1 and task["start_date"] is not None]
    return [task for task in first if task["start_date"] > large["start_date"]]


def _tasks(stack: Stack, runs: dict[str, str]) -> list[dict[str, Any]]:
    return [task for run in runs.items() for task in stack.api.task_instances(*run)]


def _slots(stack: Stack) -> int:
    return sum(pool["slots"] for name, pool in stack.api.pools().items() if name.startswith("ray."))


def _add_node(stack: Stack) -> RayNode:
    """Once more if the machine was too busy: a node that did not come up in time is gone."""
    shape = (MORE, MORE * 512 * 1024**2)
    try:
        return stack.ray.add_node(*shape)
    except (NotReady, ServiceDied):
        return stack.ray.add_node(*shape)


@pytest.fixture(scope="module")
def crowded(stack: Stack) -> Crowded:
    watch = Watch(stack)
    with (
        (stack.directory / "contention.log").open("w") as output,
        controller(stack, "--interval", "2", output=output),
        watch.usage,
    ):
        enough = stack.directory / "enough"
        conf = {"enough": str(enough)}
        runs = {f"crowd_{tenant}": start(stack, f"crowd_{tenant}", conf=conf) for tenant in TENANTS}
        until(lambda: watch.in_use >= CAPACITY - 2, "a full cluster", 180)
        runs["large"] = start(stack, "large")
        # Ray gives a node thirty seconds to start: not while twelve jobs start as well, if that can be had.
        begun = time.monotonic()
        until(lambda: watch.none_starts() or time.monotonic() - begun > CALM_WITHIN, "a calm moment", 120)
        node = _add_node(stack)
        try:
            node_id = stack.ray.alive_nodes()[node.name]["node_id"]
            until(lambda: _slots(stack) > CAPACITY, "pools that have the new node's slots", 60)
            until(lambda: watch.small_ones_run_on(node_id), "a small job on the new node", 180)
        finally:
            # Whatever comes of it, the tests that follow have the cluster that they know.
            stack.ray.remove_node(node)
        until(lambda: _slots(stack) <= CAPACITY, "pools without the node that went away", 60)
        until(lambda: len(_after_the_large(_tasks(stack, runs))) >= ENOUGH, "a large task among small", 360)
        enough.touch()
        states = {dag_id: finish(stack, dag_id, run_id, 420) for dag_id, run_id in runs.items()}
    stack.airflow.cli("raytenant", "pools", "sync")
    return Crowded(watch, states, _tasks(stack, runs))


@pytest.mark.timeout(900)
def test_three_tenants_share_a_cluster_whose_nodes_come_and_go(
    stack: Stack, crowded: Crowded, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = crowded.watch.usage
    assert set(crowded.states.values()) == {"success"}
    together = [sample for sample in usage.samples if set(sample.jobs_by_tenant) == set(TENANTS)]
    peak = usage.peak
    assert peak is not None
    tried_again = sum(task["try_number"] > 1 for task in crowded.tasks)
    with capsys.disabled():
        print(
            f"\nthree tenants: all at once in {len(together)} of {len(usage.samples)} samples, at most "
            f"{peak.slots} slots in use of {CAPACITY} to {CAPACITY + MORE}; {tried_again} tasks ran anew"
        )
    assert together
    assert peak.slots > CAPACITY - 2
    # What ran on the node that went away.
    assert tried_again > 0


def test_never_more_is_in_use_than_there_is(crowded: Crowded) -> None:
    """Where a node was lost, jobs that had their slots on it drain: what is in use only ever falls then."""
    samples = crowded.watch.usage.samples
    over = [
        (sample.seconds, before.slots, sample.slots, crowded.watch.capacity_at(sample.seconds))
        for before, sample in pairwise(samples)
        if sample.slots > max(before.slots, crowded.watch.capacity_at(sample.seconds))
    ]
    assert over == []
    assert samples[0].slots <= CAPACITY
    assert crowded.watch.usage.misses < len(samples) / 10


def test_the_large_task_starts_while_small_ones_still_come(
    crowded: Crowded, capsys: pytest.CaptureFixture[str]
) -> None:
    (large,) = [task for task in crowded.tasks if task["task_id"] == "large"]
    assert (large["pool"], large["pool_slots"]) == ("ray.initech.large", 6)
    later = _after_the_large(crowded.tasks)
    with capsys.disabled():
        print(f"\nthe large task started before {len(later)} small ones that were ready earlier")
    assert len(later) >= ENOUGH
