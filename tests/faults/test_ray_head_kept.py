"""Ray's head is killed once and started again with its records on disk, while jobs end or their node dies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from tests.faults.acts import Act, Fault
from tests.faults.conftest import MIB
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.world import Run, World, until

ACT = Act()
_WORLD: list[World] = []


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    _WORLD.append(world)
    world.stack.ray.add_node(2, 256 * MIB)
    with ACT.play(world) as futures:
        yield futures


def away() -> None:
    """The head is killed and started again; while it is away the node with `doomed` dies, and a job ends."""
    world = _WORLD[0]
    ray = world.stack.ray
    doomed = next(node for node in ray.nodes if node.name == "node-2")

    def meanwhile() -> None:
        ray.kill_node(doomed)
        ENDS[0].release()
        until(lambda: not ENDS[0].pids(), "the end of the job", 30)

    ray.restart_head(meanwhile)
    ray.add_node(2, 256 * MIB)


ENDS: list[Run] = []
struck = ACT.blow("the head was away", 3, away)


def running(fault: Fault, dag_id: str, starts: tuple[int, ...] = (1,)) -> Run:
    run = fault.run(dag_id, starts=starts)
    run.wait_started()
    run.wait_state("deferred")
    return run


@ACT.fault("head SIGKILLed, started again with its records")
def goes_on(fault: Fault) -> None:
    run = running(fault, PLAIN)
    struck()
    fault.hurt()
    run.release()
    run.wait_state("success")
    fault.well()


@ACT.fault("head SIGKILLed, started again: meanwhile the job ends")
def ends_meanwhile(fault: Fault) -> None:
    run = running(fault, PLAIN)
    ENDS.append(run)
    struck()
    fault.hurt()
    run.wait_state("success")
    fault.well()


@ACT.fault("head SIGKILLed, started again: meanwhile the job's node dies")
def dies_meanwhile(fault: Fault) -> None:
    run = running(fault, "doomed", starts=(2,))
    struck()
    fault.hurt()
    run.wait_started(2, timeout=150)
    fault.well()
    run.release()
    run.wait_state("success")


@pytest.mark.parametrize("name", ACT.names)
def test_it_is_got_over(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
