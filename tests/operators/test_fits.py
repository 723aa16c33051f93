"""What fits no node fails at once, unless the cluster has just been started."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.exceptions import DoesNotFitError
from airflow_provider_raytenant.operators import prepare as module
from airflow_provider_raytenant.operators.sizing import size


class Nodes:
    """A cluster that shows other nodes each time it is asked."""

    def __init__(self, *answers: list[Node]) -> None:
        self.answers = list(answers)

    async def nodes(self) -> list[Node]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def _head(age: float | None) -> Node:
    started = None if age is None else time.time() - age
    return Node("head", Resources(), is_head=True, started_at=started)


WORKER = Node("worker", Resources(cpus=8, memory=8 * 1024**3))


@pytest.mark.parametrize("age", [None, 3600.0])
def test_what_fits_no_node_fails_at_once(age: float | None) -> None:
    sizing = size("acme", num_cpus=4)
    with pytest.raises(DoesNotFitError, match="a driver of this job asks for 4 CPU"):
        asyncio.run(
            module._see_that_it_fits(Nodes([_head(age)]), logging.getLogger(), sizing.view, sizing.placement)  # type: ignore[arg-type]
        )


def test_the_nodes_of_a_head_that_was_just_started_may_be_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None: ...

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    sizing = size("acme", num_cpus=4)
    cluster = Nodes([_head(5)], [_head(7)], [_head(9), WORKER])
    asyncio.run(module._see_that_it_fits(cluster, logging.getLogger(), sizing.view, sizing.placement))  # type: ignore[arg-type]
    assert len(cluster.answers) == 1
