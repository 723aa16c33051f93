"""The scheduler is killed, with the executor's processes left alone, and started again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from tests.faults.acts import Act, Fault
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.world import World, until

ACT = Act()
_WORLD: list[World] = []


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    _WORLD.append(world)
    with ACT.play(world) as futures:
        yield futures


def strike() -> None:
    _WORLD[0].stack.airflow.kill("scheduler")


killed = ACT.blow("the scheduler is killed", 3, strike)
restarted = ACT.blow(
    "the scheduler is started again", 3, lambda: _WORLD[0].stack.airflow.restart("scheduler")
)


@ACT.fault("scheduler SIGKILLed while the job runs")
def deferred(fault: Fault) -> None:
    run = fault.run(PLAIN)
    run.wait_started()
    run.wait_state("deferred")
    killed()
    fault.hurt()
    restarted()
    run.release()
    run.wait_state("success")
    fault.well()


@ACT.fault("scheduler SIGKILLed while the task is queued")
def queued(fault: Fault) -> None:
    run = fault.run(PLAIN)
    until(lambda: run.task() is not None, "the task", 60)
    killed()
    fault.hurt()
    restarted()
    run.wait_started(timeout=150)
    fault.well()
    run.release()
    run.wait_state("success")


@ACT.fault("scheduler and executor killed with deferrable=False: adopted")
def waiting(fault: Fault) -> None:
    run = fault.run("worker")
    run.wait_started()
    killed()
    fault.hurt()
    restarted()
    run.wait_try(2, timeout=120)
    fault.well()
    until(lambda: run.started()[0] in run.log(2), "the adoption", 60, run.told)
    run.release()
    run.wait_state("success")


@pytest.mark.parametrize("name", ACT.names)
def test_the_job_goes_on(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
