"""The triggerer is killed once, while jobs are in every phase of their submit."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from stack.fault_proxy import Hold, Rule
from tests.faults.acts import Act, Fault
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.world import Run, World, until

ACT = Act()
SUBMIT = r"^/api/jobs/$"
_WORLD: list[World] = []


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    _WORLD.append(world)
    with ACT.play(world) as futures:
        yield futures


def freeze() -> None:
    """From now on no trigger gets any further."""
    _WORLD[0].stack.airflow.kill_all("triggerer", signal.SIGSTOP)


def strike() -> None:
    _WORLD[0].stack.airflow.kill_all("triggerer")


frozen = ACT.blow("the triggerer stands still", 5, freeze)
killed = ACT.blow("the triggerer is killed", 5, strike)
restarted = ACT.blow(
    "the triggerer is started again", 5, lambda: _WORLD[0].stack.airflow.restart("triggerer")
)


def survive(fault: Fault, run: Run) -> None:
    """The job runs, once, and its end is seen."""
    run.wait_started(timeout=120)
    fault.well()
    run.release()
    run.wait_state("success")


@ACT.fault("triggerer SIGKILLed before the submit")
def before(fault: Fault) -> None:
    frozen()
    run = fault.run(PLAIN)
    run.wait_state("deferred")
    killed()
    fault.hurt()
    assert run.jobs() == []
    restarted()
    survive(fault, run)


@ACT.fault("triggerer SIGKILLed in the submit, which never arrives")
def inside(fault: Fault) -> None:
    hold = Hold(forwarded=False)
    fault.proxy.add(Rule(hold, "POST", SUBMIT, "in-submit", times=1))
    run = fault.run("in-submit")
    assert hold.wait_kept(90), run.told()
    frozen()
    killed()
    fault.hurt()
    hold.drop()
    restarted()
    survive(fault, run)


@ACT.fault("triggerer SIGKILLed in the submit, which arrived")
def answer(fault: Fault) -> None:
    hold = Hold(forwarded=True)
    fault.proxy.add(Rule(hold, "POST", SUBMIT, "in-answer", times=1))
    run = fault.run("in-answer")
    assert hold.wait_kept(90), run.told()
    frozen()
    killed()
    fault.hurt()
    hold.drop()
    restarted()
    until(lambda: run.task().triggerer_id, "the new trigger", 90, run.told)
    survive(fault, run)


@ACT.fault("triggerer SIGKILLed in the submit, which arrives after the next one's")
def late(fault: Fault) -> None:
    hold = Hold(forwarded=False)
    fault.proxy.add(Rule(hold, "POST", SUBMIT, "late-submit", times=1))
    run = fault.run("late-submit")
    assert hold.wait_kept(90), run.told()
    frozen()
    killed()
    fault.hurt()
    restarted()
    run.wait_started(timeout=120)
    fault.well()
    hold.release()
    run.release()
    run.wait_state("success")


@ACT.fault("triggerer SIGKILLed while the job runs")
def after(fault: Fault) -> None:
    run = fault.run(PLAIN)
    run.wait_started()
    run.wait_state("deferred")
    frozen()
    killed()
    old = run.task().triggerer_id
    fault.hurt()
    restarted()
    until(lambda: run.task().triggerer_id not in (None, old), "the new trigger", 120, run.told)
    fault.well()
    run.release()
    run.wait_state("success")
    lines = run.lines()
    assert sorted(set(lines)) == list(range(max(lines) + 1))
    # One line a second is written, and 5 s may be told twice.
    assert len(lines) - len(set(lines)) <= 6, lines


@pytest.mark.parametrize("name", ACT.names)
def test_the_job_runs_once(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
