"""An output that is too long: its beginning, a note, its last lines, and the record all the same."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from airflow_provider_raytenant.ray_api import log_end
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.log_end import LAST_LINES, without_overlap
from airflow_provider_raytenant.runner.end_record import encode, record_length
from tests.fakes import faults
from tests.fakes.faults import Handler
from tests.fakes.ray_server import FakeJob, FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.following import FILE, Follow

LIMIT = 1024**2
HEADING = "# The last lines of the job's output:"


@pytest.fixture
def job(fake: FakeRay) -> FakeJob:
    job = fake.add_job("j")
    job.run()
    return job


def numbered(count: int, *, first: int = 0) -> list[str]:
    return [f"line {number:9} of the job" for number in range(first, first + count)]


def written(job: FakeJob, lines: list[str]) -> None:
    job.write("".join(f"{line}\n" for line in lines))


async def test_beginning_note_end_and_record(fake: FakeRay, job: FakeJob, client: RayClient) -> None:
    lines = numbered(100_000)
    written(job, lines)
    job.write_record(result="x" * 300_000)
    job.end()
    follow = Follow(client, max_bytes=LIMIT, rest="http://ray.example/j")
    await follow.finish()

    said = [text for text in follow.said if isinstance(text, str)]
    notes = [number for number, text in enumerate(said) if text.startswith("#")]
    copied, end = said[: notes[0]], said[notes[1] + 1 :]
    assert copied == lines[: len(copied)]
    assert LIMIT - 30 < sum(len(line) + 1 for line in copied) <= LIMIT
    assert "longer than the 1 MiB that are copied" in said[notes[0]]
    assert "http://ray.example/j" in said[notes[0]]
    assert notes[1:] == [notes[0] + 1]
    assert said[notes[1]] == HEADING
    assert end == lines[-LAST_LINES:]
    assert follow.follower.record is not None
    assert follow.follower.record["result"] == "x" * 300_000
    assert fake.calls("GET", "/api/jobs/.*") == []


async def test_nothing_is_read_between_the_limit_and_the_end(
    fake: FakeRay, job: FakeJob, client: RayClient, until: Until
) -> None:
    follow = Follow(client, max_bytes=LIMIT).start()
    written(job, numbered(100_000))
    await until(lambda: follow.noted("longer than"), "the limit")
    read = len(fake.calls("GET", FILE))
    written(job, numbered(10, first=100_000))
    job.write("last words")
    job.end("FAILED")
    await follow.finish()

    assert len(fake.calls("GET", FILE)) == read + 1
    assert follow.lines[-3:] == [*numbered(2, first=100_008), "last words"]
    assert follow.follower.record is None
    assert len(follow.notes) == 2


async def test_the_end_repeats_no_line(job: FakeJob, client: RayClient) -> None:
    lines = numbered(LIMIT // 26 + 20)
    written(job, lines)
    job.end()

    assert await Follow(client, max_bytes=LIMIT).finish() == lines


async def test_a_reading_ends_at_the_limit(fake: FakeRay, job: FakeJob, client: RayClient) -> None:
    async def endless(request: web.Request, _handler: Handler) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        while True:
            await response.write(b"a line\n" * 1000)

    fake.fail("GET", FILE, endless)
    written(job, ["the end"])
    job.end()
    follow = Follow(client, max_bytes=LIMIT)
    lines = await asyncio.wait_for(follow.finish(), 20)

    assert lines == ["a line"] * (LIMIT // 7) + ["the end"]


async def test_one_line_beyond_the_limit(job: FakeJob, client: RayClient) -> None:
    written(job, ["first", "x" * LIMIT, "last"])
    job.write_record()
    job.end()
    follow = Follow(client, max_bytes=LIMIT)

    assert await follow.finish() == ["first", "x" * LIMIT, "last"]
    assert follow.follower.record is not None


async def test_only_so_much_of_the_end_is_kept(
    job: FakeJob, client: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_end, "_KEPT", 200_000)
    written(job, ["first", "x" * LIMIT, "y" * LIMIT, "last"])
    job.write_record()
    job.end()
    follow = Follow(client, max_bytes=LIMIT)

    assert await follow.finish() == ["first", "last"]
    assert follow.follower.record is not None


async def test_a_line_behind_a_long_record(job: FakeJob, client: RayClient) -> None:
    written(job, numbered(100_000))
    job.write_record(result="x" * 1_000_000)
    written(job, ["Running entrypoint for job j"])
    job.end()
    follow = Follow(client, max_bytes=LIMIT)

    assert (await follow.finish())[-2:] == [*numbered(1, first=99_999), "Running entrypoint for job j"]
    assert follow.follower.record is not None


async def test_an_end_that_cannot_be_read(fake: FakeRay, job: FakeJob, client: RayClient) -> None:
    written(job, numbered(100_000))
    job.end()
    fake.fail("GET", FILE, faults.passes, *[faults.status(500)] * 100)
    follow = Follow(client, max_bytes=LIMIT)
    await follow.finish()

    assert follow.noted("The end of the job's output could not be read")
    assert follow.follower.record is None


def test_overlaps() -> None:
    for before, lines, left in [
        ([], ["a"], ["a"]),
        (["x", "a", "b"], ["a", "b", "c"], ["c"]),
        (["a", "b"], ["b", "a", "b"], ["a", "b"]),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        (["a", "a", "a"], ["a", "a"], []),
    ]:
        assert without_overlap(lines, [hash(line) for line in before]) == left


def test_the_length_of_a_record() -> None:
    lines = encode({"v": 1, "result": "x" * 20_000}).splitlines()[1:]

    assert len(lines) > 2
    assert {record_length(line) for line in lines} == {len(lines)}
    assert record_length("::raytenant-end:: of something") == 0
