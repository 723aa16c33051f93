"""Ray's dashboard dies. `ray start --block` then ends the whole head, which is started again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from tests.faults.acts import Act, Fault
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.processes import dashboard, kill
from tests.faults.world import World, until

ACT = Act()


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


@ACT.fault("dashboard SIGKILLed, which ends the head; started again")
def killed(fault: Fault) -> None:
    ray = fault.world.stack.ray
    run = fault.run(PLAIN)
    run.wait_started()
    run.wait_state("deferred")
    kill(dashboard(fault.world).pid)
    until(lambda: not ray.head.service.running, "the end of the head without its dashboard", 60)
    ray.restart_head()
    fault.hurt()
    run.release()
    run.wait_state("success")
    fault.well()


@pytest.mark.parametrize("name", ACT.names)
def test_the_job_goes_on(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
