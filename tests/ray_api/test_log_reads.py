"""All followers of a cluster together read no more than it bears, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web

from airflow_provider_raytenant.ray_api import log_reads
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.log_reads import LARGE, LIVE_AT_ONCE, LogReads
from tests.fakes.faults import Handler
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.following import FILE, Follow


async def test_beyond_the_seats_the_output_comes_at_the_end(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    job = fake.add_job("j")
    job.run()
    job.write("hello\n")
    reads = LogReads(live=1)
    first = Follow(client, reads=reads).start()
    await until(lambda: first.lines, "the first follower's line")
    assert reads.taken
    second = Follow(client, reads=reads).start()
    await until(lambda: second.notes, "the note")
    assert second.noted("1 jobs are followed already")
    assert await second.finish() == ["hello"]
    assert first.notes == []
    await first.follower.cancel()


async def test_who_waits_for_a_seat_gets_the_next(fake: FakeRay, client: RayClient, until: Until) -> None:
    job = fake.add_job("j")
    job.run()
    job.write("hello\n")
    reads = LogReads(live=1)
    followers = [Follow(client, reads=reads).start() for _ in range(3)]
    for follow in followers:
        await until(lambda follow=follow: follow.lines == ["hello"], "the line")
        await follow.follower.cancel()

    assert [len(follow.notes) for follow in followers] == [0, 1, 1]
    assert not reads.taken


async def test_only_a_few_readings_at_once(fake: FakeRay, client: RayClient, until: Until) -> None:
    under_way, most = 0, 0
    gate = asyncio.Event()

    async def slow(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        return await handler(request)

    fake.fail("GET", FILE, *[slow] * 1000)
    job = fake.add_job("j")
    job.run()
    job.write("hello\n")
    reads = LogReads()
    followers = [Follow(client, reads=reads).start() for _ in range(20)]
    await until(lambda: under_way == LIVE_AT_ONCE, "some readings")
    gate.set()
    await until(lambda: all(follow.lines for follow in followers), "everybody's line")
    for follow in followers:
        await follow.follower.cancel()

    assert most == LIVE_AT_ONCE


async def turns(reads: LogReads, sizes: list[int]) -> list[float]:
    """Seconds after which each of these readings may begin, all wanted at once."""
    started = time.monotonic()

    async def turn(size: int) -> float:
        async with reads.live_read(size):
            return time.monotonic() - started

    return await asyncio.gather(*map(turn, sizes))


async def test_small_readings_keep_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "READS_PER_SECOND", 100)
    begun = await turns(LogReads(), [0, LARGE] * 10)

    assert begun == sorted(begun)
    assert 0.19 <= begun[-1] < 1


async def test_large_readings_keep_their_bytes_and_hold_up_no_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_reads, "BYTES_PER_SECOND", 20 * (LARGE + 1))
    large, small, later = (await turns(LogReads(), [LARGE + 1, 10, 4 * (LARGE + 1), LARGE + 1]))[:3]
    assert max(large, small) < 0.04
    assert later >= 0.05


async def test_the_beat_begins_anew_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "READS_PER_SECOND", 20)
    reads = LogReads()
    await turns(reads, [0])
    await asyncio.sleep(0.1)
    begun = await turns(reads, [0, 0])

    assert begun[0] < 0.04
    assert begun[1] >= 0.045
