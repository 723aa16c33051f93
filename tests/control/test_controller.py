from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_raytenant.control import clusters, health
from airflow_provider_raytenant.control import controller as controller_module
from airflow_provider_raytenant.control.controller import Controller, Settings
from airflow_provider_raytenant.database import heartbeats
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_rows import MARK, ExistingPool
from airflow_provider_raytenant.exceptions import TenantFileError
from airflow_provider_raytenant.ray_api import stopping
from tests.fakes.faults import delay, status
from tests.fakes.world import World, identity

INTERVAL = 0.05
WEEK = 7 * 86400.0
FOR_EVER = 86400.0 * 36500


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_INTERVAL", 0.01)
    monkeypatch.setattr(controller_module, "LONGEST_PAUSE", 0.1)
    # Lists of jobs of a fake take longer than a tenth of this interval.
    monkeypatch.setattr(controller_module, "LISTING_SHARE", 1.0)


async def until(condition: Callable[[], Any], what: str) -> None:
    try:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited in vain for {what}")


@asynccontextmanager
async def running(world: World, older_than: float = FOR_EVER) -> AsyncIterator[list[str]]:
    """A controller at work; gives what it says. It has to end within two seconds."""
    said: list[str] = []
    made = Controller(str(world.file), Settings(INTERVAL, older_than), said.append)
    stop = asyncio.Event()
    work = asyncio.create_task(made.run(stop))
    try:
        yield said
    finally:
        begun = time.monotonic()
        stop.set()
        await work
        assert time.monotonic() - begun < 2


async def rounds(world: World, count: int = 3) -> None:
    """Let some more rounds of the second cluster go by."""
    before = len(world.two.calls("GET", "/api/jobs/"))
    await until(lambda: len(world.two.calls("GET", "/api/jobs/")) >= before + count, "rounds")


async def test_pools_become_what_they_should_be_and_are_then_left_alone(world: World) -> None:
    async with running(world) as said:
        await until(lambda: {"ray.acme", "ray.globex"} <= set(world.database.pools), "the pools")
        writes = world.database.writes
        await rounds(world)
        # Nothing to change: no lock is taken, nothing is written, nothing is said.
        assert world.database.writes == writes
        assert len(said) == 2
    assert world.database.pools["ray.acme"].slots == 2
    assert any(line.startswith("pool ray.acme: made with 2 slots: guarantee 0") for line in said)


async def test_pools_follow_what_waits_and_give_back(world: World) -> None:
    text = world.file.read_text()
    world.file.write_text(text.replace("globex: {cluster: two}", "globex: {}"))
    pools, demand = world.database.pools, world.database.demand
    async with running(world) as said:
        await until(lambda: {"ray.acme", "ray.globex"} <= set(pools), "the pools")
        assert (pools["ray.acme"].slots, pools["ray.globex"].slots) == (1, 1)
        demand["ray.acme"] = Demand((1, 1))
        await until(lambda: pools["ray.acme"].slots == 2, "what it borrows")
        assert pools["ray.globex"].slots == 0
        demand["ray.acme"] = Demand()
        await until(lambda: pools["ray.globex"].slots == 1, "what it gave back")
    told = (
        "pool ray.acme: 1 to 2 slots: guarantee 0, weight 1; 2 wait for 2 slots, 2 free for that; 2 borrowed"
    )
    assert any(line.startswith(told) for line in said)


async def test_slots_of_an_orphan_are_nobodys_until_it_has_ended(world: World) -> None:
    own = identity(1)
    async with running(world) as said:
        await until(lambda: "ray.acme" in world.database.pools, "the pools")
        # It does not end when it is told to.
        job = world.job(own)
        job.stops = False
        await until(lambda: world.database.pools["ray.acme"].slots == 0, "the smaller pool")
        job.end("STOPPED")
        await until(lambda: world.database.pools["ray.acme"].slots == 2, "the whole pool")
    assert any("2 held by jobs whose task is over" in line for line in said)


async def test_an_orphan_is_stopped_and_a_wanted_job_and_others_are_not(world: World) -> None:
    orphan, wanted = identity(1), identity(2)
    world.job(wanted)
    world.database.state(wanted, "deferred")
    theirs = world.job(identity(3, deployment="staging"))
    async with running(world) as said:
        await rounds(world)
        job = world.job(orphan)
        await until(lambda: job.status == "STOPPED", "the stop")
        await rounds(world)
    assert theirs.status == world.one.jobs[wanted.submission_id].status == "RUNNING"
    assert f"cluster one: stopping job {orphan.submission_id}: its task etl.load is gone" in said


async def test_an_adoptable_job_of_a_cleared_task_is_stopped_by_the_second_sweep(world: World) -> None:
    own = identity(1)
    job = world.job(own, adoptable="true")
    world.database.state(own, None, ti_id="another")
    async with running(world):
        await until(lambda: job.status == "STOPPED", "the stop")
    assert len(world.one.calls("GET", "/api/jobs/")) >= 2


async def test_old_records_go_at_once_and_then_only_now_and_then(world: World) -> None:
    first, second = identity(1), identity(2)
    world.job(first, "SUCCEEDED")
    async with running(world, WEEK) as said:
        await until(lambda: not world.one.jobs, "the deletion")
        world.job(second, "SUCCEEDED")
        await rounds(world)
        assert [*world.one.jobs] == [second.submission_id]
    assert "cluster one: deleted 1 record of jobs that ended 7d ago or more" in said


async def test_a_hung_dashboard_holds_up_no_other_cluster_and_not_the_pools(world: World) -> None:
    world.one.outage(delay(60))
    own = identity(1, tenant="globex")
    job = world.job(own, ray=world.two)
    async with running(world):
        await until(lambda: job.status == "STOPPED", "the stop on the other cluster")
        await until(lambda: "ray.globex" in world.database.pools, "the other cluster's pool")
        assert "ray.acme" not in world.database.pools
        # ... and the end comes in the middle of the hung round.


async def test_ray_away_is_one_line_and_so_is_its_return(world: World) -> None:
    async with running(world) as said:
        await rounds(world)
        world.one.outage(status(502))
        await until(lambda: any("cluster one" in line for line in said), "the line")
        await rounds(world, 10)
        # Its pool was not touched for it.
        assert world.database.pools["ray.acme"].slots == 2
        job = world.job(identity(1))
        world.one.outage(None)
        await until(lambda: job.status == "STOPPED", "the stop after the outage")
        await until(lambda: any("well again" in line for line in said), "the line")
    about = [line for line in said if line.startswith("cluster one") and "job" not in line]
    assert len(about) == 2
    assert "answered 502" in about[0]
    assert about[0].endswith("; trying on")
    assert about[1].startswith("cluster one: well again after ")


async def test_the_database_away_is_few_lines_and_so_is_its_return(world: World) -> None:
    wanted = identity(1)
    job = world.job(wanted)
    world.database.state(wanted, "deferred")
    async with running(world) as said:
        await until(lambda: "ray.acme" in world.database.pools, "the pools")
        before = len(said)
        world.database.away = True
        await until(lambda: any(line.startswith("database: ") for line in said), "the line")
        reads = world.database.reads
        await until(lambda: world.database.reads > reads + 10, "more tries")
        during = said[before:]
        world.database.state(wanted, "failed")
        assert job.status == "RUNNING"
        world.database.away = False
        await until(lambda: job.status == "STOPPED", "the stop after the outage")
        await until(lambda: any(line.startswith("database: well again") for line in said), "the line")
    assert 1 <= sum("trying on" in line for line in during) <= 2
    assert sum(line.startswith("database: ") for line in said) == 2


async def test_a_connection_that_cannot_be_read_is_not_called_missing_while_the_database_is_away(
    world: World,
) -> None:
    world.database.away = True
    endpoints, world.database.endpoints = world.database.endpoints, {}
    async with running(world) as said:
        await until(lambda: world.database.reads > 10, "some tries")
        assert not any("found none" in line for line in said)
        world.database.away = False
        await until(lambda: any("connection ray_one: found none" in line for line in said), "the line")
        world.database.endpoints = endpoints
        await until(lambda: "ray.acme" in world.database.pools, "the pools")


async def test_a_silent_database_does_not_hold_up_the_end(world: World) -> None:
    world.database.hangs = threading.Event()
    world.job(identity(1))
    try:
        async with running(world):
            await until(lambda: world.database.reads >= 2, "hung calls")
    finally:
        world.database.hangs.set()


async def test_a_changed_file_is_read_again_and_a_wrong_one_is_not_taken(world: World) -> None:
    async with running(world) as said:
        await until(lambda: {"ray.acme", "ray.globex"} <= set(world.database.pools), "the pools")
        right = world.file.read_text()
        world.file.write_text(right + "  umbrella: {guarantee: -1}\n")
        await until(lambda: any("umbrella" in line for line in said), "the line about the wrong file")
        await rounds(world)
        assert "ray.umbrella" not in world.database.pools
        world.file.unlink()
        await until(lambda: any("No such file" in line for line in said), "the line about the missing file")
        await rounds(world)
        told = [line for line in said if line.startswith("tenant file")]
        assert len(told) == 2
        assert all("the one of before stays in force" in line for line in told)
        world.file.write_text(right + "  umbrella: {}\n")
        await until(lambda: "ray.umbrella" in world.database.pools, "the new tenant's pool")
    assert "tenant file: read again: 3 tenants" in said


async def test_a_cluster_that_leaves_the_file_is_left_alone_and_one_that_comes_is_tended(
    world: World,
) -> None:
    text = world.file.read_text()
    only_two = text.replace("  one: {ray_conn_id", "  #").replace("cluster: one", "cluster: two")
    world.file.write_text(only_two)
    async with running(world):
        await rounds(world)
        assert world.one.calls() == []
        world.file.write_text(text)
        await until(lambda: len(world.one.calls("GET", "/api/jobs/")) > 1, "rounds of the new cluster")
        world.file.write_text(only_two)
        await rounds(world)
        job = world.job(identity(1))
        calls = len(world.one.calls())
        await rounds(world)
        assert len(world.one.calls()) == calls
        assert job.status == "RUNNING"


def test_a_file_that_is_wrong_from_the_beginning_is_refused(world: World) -> None:
    world.file.write_text("deployment: X\n")
    with pytest.raises(TenantFileError, match="deployment"):
        Controller(str(world.file), Settings(INTERVAL, WEEK), print)


async def test_lists_of_jobs_take_a_share_of_a_dashboards_time_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "LISTING_SHARE", 0.1)
    world.one.outage(delay(0.05))
    async with running(world):
        await until(lambda: len(world.one.calls("GET", "/api/jobs/")) >= 3, "three lists")
    at = [seen.at for seen in world.one.seen if seen.path == "/api/jobs/"]
    assert all(after - before >= 0.5 for before, after in pairwise(at))


async def test_an_unknown_error_ends_it_loudly(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(clusters, "read_endpoint", broken)
    made = Controller(str(world.file), Settings(INTERVAL, WEEK), print)
    with pytest.raises(ExceptionGroup) as error:
        await asyncio.wait_for(made.run(asyncio.Event()), 10)
    assert error.group_contains(ZeroDivisionError)


async def test_once_does_one_round_of_everything_and_tells_whether_it_went_well(world: World) -> None:
    orphan, old = identity(1), identity(2, tenant="globex")
    world.job(orphan)
    world.job(old, "FAILED", ray=world.two)
    said: list[str] = []
    assert await Controller(str(world.file), Settings(INTERVAL, WEEK), said.append).once()
    assert world.one.jobs[orphan.submission_id].status == "STOPPED"
    assert world.two.jobs == {}
    assert {"ray.acme", "ray.globex"} <= set(world.database.pools)
    world.two.outage(status(502))
    assert not await Controller(str(world.file), Settings(INTERVAL, WEEK), said.append).once()
    world.two.outage(None)
    world.database.away = True
    assert not await Controller(str(world.file), Settings(INTERVAL, WEEK), said.append).once()


async def test_it_leaves_signs_of_life_and_says_when_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "INTERVAL", 0.02)
    async with running(world):
        await until(lambda: len(world.database.beats) > 2, "three heartbeats")
    assert world.database.beats[-1] == "ended"
    assert set(world.database.beats[:-1]) == {"lives"}


async def test_a_database_that_is_away_keeps_no_heartbeat_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "INTERVAL", 0.02)
    world.database.away = True
    async with running(world) as said:
        await until(lambda: said, "its complaint")
        assert world.database.beats == []
        world.database.away = False
        await until(lambda: world.database.beats, "a heartbeat")


async def test_one_round_leaves_a_sign_of_its_own(world: World) -> None:
    assert await Controller(str(world.file), Settings(INTERVAL, WEEK), lambda text: None).once()
    assert world.database.beats == ["once"]


async def test_its_health_goes_to_airflows_metrics(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gauges: dict[str, float] = {}
    failures: list[str] = []
    monkeypatch.setattr(health.stats, "gauge", gauges.__setitem__)
    monkeypatch.setattr(health.stats, "incr", failures.append)
    # One slot more than the whole cluster has.
    world.database.demand["ray.acme"] = Demand((1, 3))
    pool = ExistingPool("ray.globex", 4, f"{MARK} for tenant globex", occupied=4)
    world.database.pools["ray.globex"] = pool
    async with running(world):
        await until(lambda: gauges.get("raytenant.clusters.silent") == 0 and world.database.syncs, "a sync")
        assert gauges.pop("raytenant.sync.age") < 1
        assert gauges == {
            "raytenant.clusters.silent": 0,
            "raytenant.pools.refused": 0,
            "raytenant.pools.over_occupied": 1,
            "raytenant.slots.over_occupied": 2,
            "raytenant.demand.slots": 4,
            "raytenant.demand.capped": 1,
        }
        assert failures == []
        world.database.away = True
        await until(lambda: gauges.get("raytenant.sync.age", 0) > 0.2, "a sync that grows old")
        assert set(failures) == {"raytenant.sync.failures"}
