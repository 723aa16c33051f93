"""A triggerer stands still until another has taken its triggers, and comes back; one is ended in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime

import pytest

from stack.airflow_stack import SECOND_TRIGGERER
from tests.faults.acts import Act, Fault
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.world import Run, World, until

ACT = Act()


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


def taken_over(run: Run, by_other_than: int | None) -> int:
    """Wait until another triggerer has the trigger of a run; its id."""

    def other() -> int | None:
        task = run.task()
        return task.triggerer_id if task and task.triggerer_id != by_other_than else None

    return until(other, f"another triggerer for {run.name}", 120, run.told)


def sign_of_life(world: World, triggerer: int) -> None:
    """Wait for the next heartbeat of a triggerer."""
    asked = datetime.now(UTC)
    until(lambda: world.heartbeats()[triggerer] > asked, f"a heartbeat of triggerer {triggerer}", 60)


frozen = ACT.blow("both jobs run", 2, lambda: None)
back = ACT.blow("the first triggerer is back", 2, lambda: None)


@ACT.fault("triggerer SIGSTOPped for longer than its health threshold, then SIGCONT")
def paused(fault: Fault) -> None:
    airflow, world = fault.world.stack.airflow, fault.world
    run = fault.run(PLAIN)
    run.wait_started()
    first = taken_over(run, None)
    frozen()
    airflow.kill_all("triggerer", signal.SIGSTOP)
    airflow.start_process(SECOND_TRIGGERER)
    taken_over(run, first)
    airflow.kill_all("triggerer", signal.SIGCONT)
    fault.hurt()
    # With its second or third heartbeat it has seen that its triggers are another's, and ended them.
    for _ in range(3):
        sign_of_life(world, first)
    fault.well()
    assert [job["status"] for job in run.jobs()] == ["RUNNING"]
    back()
    run.release()
    run.wait_state("success")
    told_whole(run)


@ACT.fault("triggerer ended in order, another goes on")
def ended(fault: Fault) -> None:
    airflow = fault.world.stack.airflow
    run = fault.run(PLAIN)
    run.wait_started()
    first = taken_over(run, None)
    frozen()
    back()
    owner = taken_over(run, None)
    fault.hurt()
    airflow.stop_process("triggerer" if owner == first else SECOND_TRIGGERER, timeout=30)
    taken_over(run, owner)
    fault.well()
    assert [job["status"] for job in run.jobs()] == ["RUNNING"]
    run.release()
    run.wait_state("success")
    told_whole(run)
    if owner == first:
        airflow.start_process("triggerer")
        airflow.stop_process(SECOND_TRIGGERER)


def told_whole(run: Run) -> None:
    """No line of the output is missing in the task's log, wherever the trigger was."""
    lines = run.lines()
    assert sorted(set(lines)) == list(range(max(lines) + 1)), lines


@pytest.mark.parametrize("name", ACT.names)
def test_the_job_is_not_touched(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
