"""At the very end Ray's head and nodes are killed and started again without any records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from tests.faults.acts import Act, Fault
from tests.faults.conftest import CAPACITY_BYTES
from tests.faults.dags.fault_lanes import CAPACITY, PLAIN
from tests.faults.world import World

ACT = Act()


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


@ACT.fault("head and nodes SIGKILLed, started again without records")
def lost(fault: Fault) -> None:
    ray = fault.world.stack.ray
    run = fault.run(PLAIN, starts=(2,))
    run.wait_started()
    run.wait_state("deferred")

    def meanwhile() -> None:
        for node in list(ray.nodes):
            ray.kill_node(node)
        shutil.rmtree(ray.env["RAY_gcs_storage_path"])

    ray.restart_head(meanwhile)
    ray.add_node(CAPACITY, CAPACITY_BYTES)
    fault.hurt()
    run.wait_started(2, timeout=150)
    fault.well()
    run.release()
    run.wait_state("success")


@pytest.mark.parametrize("name", ACT.names)
def test_the_job_is_tried_again(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
