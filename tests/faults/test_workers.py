"""Airflow's workers and its scheduler are killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from stack.fault_proxy import Hold, Rule
from tests.faults.acts import Act, Fault
from tests.faults.processes import kill, task_process
from tests.faults.world import World, until

ACT = Act()
NODES = "^/api/v0/nodes"
"""The first thing that `execute` asks Ray."""


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


@ACT.fault("worker SIGKILLed in execute, before the defer")
def before_defer(fault: Fault) -> None:
    hold = Hold(forwarded=False)
    fault.proxy.add(Rule(hold, "GET", NODES, "in-execute", times=1))
    run = fault.run("in-execute")
    assert hold.wait_kept(90), run.told()
    fault.hurt()
    kill(task_process(run).pid)
    hold.drop()
    run.wait_started()
    fault.well()
    run.release()
    run.wait_state("success")


@ACT.fault("worker SIGKILLed right after the defer")
def after_defer(fault: Fault) -> None:
    hold = Hold(forwarded=False)
    fault.proxy.add(Rule(hold, "GET", NODES, "after-execute", times=1))
    run = fault.run("after-execute")
    assert hold.wait_kept(90), run.told()
    process = task_process(run)
    # The task's process ends by itself soon after it deferred: the executor's, which watches it, goes too.
    above = process.parent()
    hold.release()
    run.wait_state("deferred")
    fault.hurt()
    kill(*([above.pid] if above else []), process.pid)
    run.wait_started()
    fault.well()
    run.release()
    run.wait_state("success")


@ACT.fault("worker SIGKILLed with deferrable=False: the retry adopts the job")
def adopted(fault: Fault) -> None:
    run = fault.run("worker")
    run.wait_started()
    fault.hurt()
    kill(task_process(run).pid)
    run.wait_try(2)
    until(lambda: run.started()[0] in run.log(2), "the adoption", 60, run.told)
    fault.well()
    run.release()
    run.wait_state("success")


@ACT.fault("worker SIGKILLed with deferrable=False, then a clear: a new job")
def cleared_between(fault: Fault) -> None:
    run = fault.run("worker", starts=(2,))
    run.wait_started()
    kill(task_process(run).pid)
    run.wait_state("up_for_retry")
    fault.hurt()
    fault.api.clear("worker", run.run_id)
    run.wait_started(2)
    fault.well()
    run.release()
    run.wait_state("success")


@pytest.mark.parametrize("name", ACT.names)
def test_the_job_goes_on(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
