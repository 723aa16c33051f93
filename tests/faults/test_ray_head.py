"""Ray's dashboard and head die: first with all that the head knew kept on disk, at the very end without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from tests.faults.acts import Act, Fault
from tests.faults.conftest import CAPACITY_BYTES
from tests.faults.dags.fault_lanes import CAPACITY, PLAIN
from tests.faults.processes import dashboard, kill
from tests.faults.world import World, until

ACT = Act()


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


kept = ACT.blow("the head with persistence is over", 2, lambda: None)


@ACT.fault("dashboard SIGKILLed, and with it the head; restarted, it finds its records")
def with_persistence(fault: Fault) -> None:
    ray = fault.world.stack.ray
    run = fault.run(PLAIN)
    run.wait_started()
    run.wait_state("deferred")
    kill(dashboard(fault.world).pid)
    until(lambda: not ray.head.service.running, "the end of the head without its dashboard", 60)
    ray.restart_head()
    fault.hurt()
    run.release()
    run.wait_state("success", timeout=150)
    fault.well()
    kept()


@ACT.fault("head and nodes restarted without persistence: the job is lost, and tried again")
def without_persistence(fault: Fault) -> None:
    ray = fault.world.stack.ray
    kept()
    run = fault.run(PLAIN, starts=(2,))
    run.wait_started()
    run.wait_state("deferred")
    (node,) = ray.nodes[1:]
    ray.kill_node(node)
    shutil.rmtree(ray.env["RAY_gcs_storage_path"])
    ray.restart_head()
    ray.add_node(CAPACITY, CAPACITY_BYTES)
    fault.hurt()
    run.wait_started(2, timeout=150)
    fault.well()
    run.release()
    run.wait_state("success")


@pytest.mark.parametrize("name", ACT.names)
def test_it_is_got_over(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
