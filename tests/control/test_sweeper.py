from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from airflow_provider_raytenant.control import sweeper as sweeper_module
from airflow_provider_raytenant.control.sweeper import Sweeper
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError, RayUnavailableError
from airflow_provider_raytenant.ray_api import stopping
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.tickets import ticket_package
from tests.fakes.faults import status
from tests.fakes.world import World, identity


@pytest.fixture
async def client(world: World) -> AsyncIterator[RayClient]:
    async with RayClient(RayEndpoint(world.one.address), attempts=2) as opened:
        yield opened


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_INTERVAL", 0.01)
    monkeypatch.setattr(sweeper_module, "WAITING", 0.05)


class Sweeps:
    """A sweeper of the world's first cluster and what it says."""

    def __init__(self, client: RayClient) -> None:
        self.client = client
        self.said: list[str] = []
        self.sweeper = Sweeper(self.said.append)

    async def look(self, older_than: float | None = None) -> list[str]:
        """Begin the stops of one look; the ids that it found."""
        look = await self.sweeper.look(self.client, "prod", older_than)
        self.sweeper.stop(self.client.endpoint, look)
        return [job.submission_id for job in look.orphans]

    async def delete(self, older_than: float = 60.0) -> list[str]:
        look = await self.sweeper.look(self.client, "prod", older_than)
        return [job.submission_id for job in await self.sweeper.delete(self.client, look.records)]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_an_orphan_is_stopped_and_everybody_elses_job_is_left_alone(
    world: World, client: RayClient
) -> None:
    orphan, wanted = identity(1), identity(2)
    world.job(orphan)
    world.job(wanted)
    world.database.state(wanted, "deferred")
    theirs = world.job(identity(3, deployment="staging"))
    copied = world.one.add_job("raysubmit_1", metadata=orphan.metadata())
    plain = world.one.add_job("raysubmit_2")
    for job in (copied, plain):
        job.run()
    sweeps = Sweeps(client)
    assert await sweeps.look() == [orphan.submission_id]
    assert await sweeps.sweeper.stopped() == {orphan.submission_id: True}
    assert world.one.jobs[orphan.submission_id].status == "STOPPED"
    assert [world.one.jobs[wanted.submission_id].status, theirs.status, copied.status, plain.status] == [
        "RUNNING"
    ] * 4
    assert world.one.calls("POST") == [f"POST /api/jobs/{orphan.submission_id}/stop"]
    assert sweeps.said == [
        f"stopping job {orphan.submission_id}: its task etl.load is gone",
        f"job {orphan.submission_id} is stopped",
    ]
    assert await sweeps.look() == []


async def test_ray_is_read_before_the_database(world: World, client: RayClient) -> None:
    """A try that begins between the two readings is seen; one that ends is a job that may be stopped."""
    own = identity(1)
    world.job(own)
    order: list[str] = []

    def read_tasks(jobs: Any) -> Any:
        order.append(f"database, after {len(world.one.calls('GET', '/api/jobs/'))} look at Ray")
        world.database.state(own, "deferred")
        return world.database.read_tasks(jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeper_module, "read_tasks", read_tasks)
        assert await Sweeps(client).look() == []
    assert order == ["database, after 1 look at Ray"]


async def test_a_stop_under_way_is_not_begun_again_and_goes_on_beside_the_next_looks(
    world: World, client: RayClient
) -> None:
    slow, other = identity(1), identity(2)
    world.job(slow).stops = False
    sweeps = Sweeps(client)
    await sweeps.look()
    await until(lambda: world.one.jobs[slow.submission_id].stop_asked)
    world.job(other)
    await sweeps.look()
    await until(lambda: world.one.jobs[other.submission_id].status == "STOPPED")
    assert [line for line in sweeps.said if "stopping" in line and slow.submission_id in line] == [
        sweeps.said[0]
    ]
    world.one.jobs[slow.submission_id].end("STOPPED")
    assert set((await sweeps.sweeper.stopped()).values()) == {True}


async def test_a_job_that_does_not_end_is_told_of_once_and_tried_again_after_a_while(
    world: World, client: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper_module, "STOP_PATIENCE", 1.0)
    own = identity(1)
    name = own.submission_id
    job = world.job(own)
    job.stops = False
    sweeps = Sweeps(client)
    await sweeps.look()
    assert await sweeps.sweeper.stopped() == {name: False}
    calls = len(world.one.calls("POST"))
    await sweeps.look()
    assert await sweeps.sweeper.stopped() == {}
    # One request that was under way when the patience ended may arrive after it.
    assert len(world.one.calls("POST")) <= calls + 1
    calls = len(world.one.calls("POST")) + 1
    monkeypatch.setattr(sweeper_module, "STOP_AGAIN", 0.0)
    for _ in range(2):
        await sweeps.look()
        assert await sweeps.sweeper.stopped() == {name: False}
    assert len(world.one.calls("POST")) > calls
    assert sweeps.said == [
        f"stopping job {name}: its task etl.load is gone",
        f"job {name} still lives 1 s after it was told to stop; it is tried again every 30 s",
    ]
    job.stops = True
    await sweeps.look()
    assert await sweeps.sweeper.stopped() == {name: True}
    assert sweeps.said[2:] == [f"job {name} is stopped"]


async def test_a_job_that_waits_in_ray_loses_its_ticket_and_is_told_of_once(
    world: World, client: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray only takes note of its stop, and keeps it PENDING until resources come free."""
    monkeypatch.setattr(sweeper_module, "STOP_AGAIN", 0.0)
    own = identity(1)
    world.job(own, "PENDING")
    sweeps = Sweeps(client)
    for _ in range(3):
        assert await sweeps.look() == [own.submission_id]
        assert await sweeps.sweeper.stopped() == {own.submission_id: True}
    revoked = ticket_package(own.submission_id, valid=False)
    assert world.one.packages[revoked.uri] == revoked.content
    assert len(sweeps.said) == 2


async def test_only_so_many_stops_at_once(
    world: World, client: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = most = 0

    async def stop_job(_client: RayClient, name: str, *, patience: float, waiting: float) -> bool:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return bool(name and patience and waiting)

    monkeypatch.setattr(sweeper_module, "stop_job", stop_job)
    for number in range(30):
        world.job(identity(number))
    sweeps = Sweeps(client)
    assert len(await sweeps.look()) == 30
    assert len(await sweeps.sweeper.stopped()) == 30
    assert most == sweeper_module.STOPS_AT_ONCE


async def test_two_at_once_are_harmless(world: World, client: RayClient) -> None:
    for number in range(10):
        world.job(identity(number))
        world.job(identity(100 + number), "SUCCEEDED")
    both = [Sweeps(client), Sweeps(client)]
    await asyncio.gather(*(sweeps.look() for sweeps in both))
    for sweeps in both:
        assert set((await sweeps.sweeper.stopped()).values()) == {True}
    deleted = await asyncio.gather(*(sweeps.delete() for sweeps in both))
    assert len({*deleted[0], *deleted[1]}) == 20
    assert world.one.jobs == {}


async def test_old_records_of_ours_go_and_no_others(
    world: World, client: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, unread = identity(1), identity(2)
    world.job(old, "FAILED")
    world.job(unread, "SUCCEEDED")
    # Its trigger has been away; it has yet to read how the job ended.
    world.database.state(unread, "deferred")
    theirs = world.job(identity(3, deployment="staging"), "SUCCEEDED")
    plain = world.one.add_job("raysubmit_1", metadata=old.metadata())
    plain.end()
    sweeps = Sweeps(client)
    assert await sweeps.delete(older_than=86400 * 36000) == []
    assert await sweeps.delete() == [old.submission_id]
    assert [*world.one.jobs] == [unread.submission_id, theirs.request["submission_id"], "raysubmit_1"]


async def test_only_so_many_records_a_sweep(
    world: World, client: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper_module, "DELETIONS_A_SWEEP", 3)
    for number in range(8):
        world.job(identity(number), "SUCCEEDED")
    sweeps = Sweeps(client)
    assert [len(await sweeps.delete()) for _ in range(4)] == [3, 3, 2, 0]


async def test_trouble_while_deleting_ends_it_and_is_told(world: World, client: RayClient) -> None:
    for number in range(50):
        world.job(identity(number), "SUCCEEDED")
    sweeps = Sweeps(client)
    look = await sweeps.sweeper.look(client, "prod", 60.0)
    world.one.outage(status(502))
    with pytest.raises(RayUnavailableError):
        await sweeps.sweeper.delete(client, look.records)
    assert len(world.one.calls("DELETE")) <= 2 * sweeper_module.DELETIONS_AT_ONCE


async def test_without_its_database_nothing_is_stopped(world: World, client: RayClient) -> None:
    world.job(identity(1))
    world.database.away = True
    with pytest.raises(DatabaseUnavailableError):
        await Sweeps(client).look()
    assert world.one.calls("POST") == []


async def test_ray_that_refuses_a_stop_is_told(world: World, client: RayClient) -> None:
    own = identity(1)
    world.job(own)
    world.one.fail("POST", ".*/stop", status(400, "no"))
    sweeps = Sweeps(client)
    await sweeps.look()
    assert await sweeps.sweeper.stopped() == {own.submission_id: False}
    assert "cannot be stopped: Ray at" in sweeps.said[-1]
