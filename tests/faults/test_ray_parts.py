"""Parts of Ray die: the supervisor of a job, a worker node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from tests.faults.acts import Act, Fault
from tests.faults.conftest import MIB
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.processes import kill, supervisor
from tests.faults.world import World

ACT = Act()


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


@ACT.fault("supervisor of the job SIGKILLed")
def supervisor_killed(fault: Fault) -> None:
    run = fault.run(PLAIN, starts=(2,))
    run.wait_started()
    run.wait_state("deferred")
    kill(supervisor(run).pid)
    fault.hurt()
    run.wait_started(2)
    fault.well()
    run.release()
    run.wait_state("success")


@ACT.fault("worker node SIGKILLed while it runs the job")
def node_killed(fault: Fault) -> None:
    ray = fault.world.stack.ray
    node = ray.add_node(2, 256 * MIB)
    assert node.name == "node-2"
    run = fault.run("doomed", starts=(2,))
    run.wait_started()
    run.wait_state("deferred")
    ray.kill_node(node)
    fault.hurt()
    again = ray.add_node(2, 256 * MIB)
    run.wait_started(2, timeout=150)
    fault.well()
    run.release()
    run.wait_state("success")
    ray.remove_node(again)


@pytest.mark.parametrize("name", ACT.names)
def test_another_try_runs(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
