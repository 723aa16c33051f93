"""Tasks are marked failed at ten moments of their first seconds: while queued, in execute, deferred."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.acts import Act, Fault
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.world import World, until

ACT = Act()
MOMENTS = [0.3 * number for number in range(10)]
"""Seconds after a task has been queued."""


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


@ACT.fault("marked failed at ten moments of the first 3 s")
def ten_moments(fault: Fault) -> None:
    states: list[str | None] = []

    def mark(moment: float) -> float:
        run = fault.run(PLAIN, ends="failed", starts=(0, 1))
        until(lambda: run.state not in (None, "gone", "scheduled"), f"the queueing of {run.name}", 60)
        # The moment is what is tried here, and not a condition.
        threading.Event().wait(moment)
        states.append(run.state)
        fault.api.mark_failed(PLAIN, run.run_id, "job")
        begun = time.monotonic()
        until(run.is_settled, f"the end of {run.name}", 60, run.told)
        return time.monotonic() - begun

    # Three at a time: all at once would slow one another down until no moment is what it was to be.
    with ThreadPoolExecutor(3) as people:
        fault.seconds = max(people.map(mark, MOMENTS))
    # Which states these are depends on how busy the machine is.
    print(f"states in which they were marked: {states}")


@pytest.mark.parametrize("name", ACT.names)
def test_no_job_is_left(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
