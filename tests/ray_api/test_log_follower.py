"""Each line of a job's output once and in order, the end record apart, whatever the streams do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from airflow_provider_raytenant.ray_api import client as client_module
from airflow_provider_raytenant.ray_api import log_follower
from airflow_provider_raytenant.ray_api.client import STREAM_SILENCE, RayClient
from airflow_provider_raytenant.ray_api.log_follower import LogFollower
from airflow_provider_raytenant.runner.end_record import encode
from tests.fakes import faults
from tests.fakes.faults import Handler
from tests.fakes.ray_server import FakeJob, FakeRay
from tests.ray_api.conftest import Until

TAIL, LOGS = "/api/jobs/j/logs/tail", "/api/jobs/j/logs"


class Follow:
    """A follower that was started, with all that it emitted and noted."""

    def __init__(self, client: RayClient) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.follower = LogFollower(client, "j", self.lines.append, self.notes.append)
        self.follower.start()


@pytest.fixture
def job(fake: FakeRay) -> FakeJob:
    job = fake.add_job("j")
    job.run()
    return job


@pytest.fixture
async def follow(client: RayClient, job: FakeJob) -> AsyncIterator[Follow]:
    following = Follow(client)
    yield following
    await following.follower.cancel()


async def test_lines_come_while_they_are_written(job: FakeJob, follow: Follow, until: Until) -> None:
    for number in range(3):
        job.write(f"line {number}\n")
        await until(lambda count=number: len(follow.lines) == count + 1, "the line")

    assert follow.lines == ["line 0", "line 1", "line 2"]
    assert follow.notes == []


async def test_a_line_in_pieces_comes_whole(job: FakeJob, follow: Follow, until: Until) -> None:
    job.write("first\nbegin ")
    await until(lambda: follow.lines, "the first line")
    job.write("middle ")
    job.write("end\nnext")
    await until(lambda: len(follow.lines) == 2, "the second line")

    assert follow.lines == ["first", "begin middle end"]


async def test_long_empty_and_unusual_lines(job: FakeJob, follow: Follow) -> None:
    unusual = ["\ttab\x0bform\x0c", "äöü 日本 🚀", "a\u2028b\x85c", "carriage\rreturn", "\x1b[31mred"]
    lines = ["x" * 3_000_000, "", "", *unusual, "", "last", ""]
    job.write("".join(f"{line}\n" for line in lines))
    job.write_record()
    job.end()
    await follow.follower.finish()

    assert follow.lines == lines
    assert follow.follower.record is not None


async def test_the_record_is_taken_out(
    fake: FakeRay, job: FakeJob, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "RECORD_WAIT", 60)
    job.write("hello\n")
    job.write_record(result={"rows": [1, 2, 3], "text": "x" * 20_000})
    job.end()
    await follow.follower.finish()

    assert follow.lines == ["hello"]
    assert follow.follower.record is not None
    assert follow.follower.record["result"]["rows"] == [1, 2, 3]
    assert fake.calls("GET", LOGS) == []


async def test_the_record_comes_after_the_jobs_end(
    job: FakeJob, follow: Follow, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "RECORD_WAIT", 60)
    job.write("hello\n")
    await until(lambda: follow.lines, "the line")
    finishing = asyncio.create_task(follow.follower.finish())
    await asyncio.sleep(0)
    job.write("last\n")
    job.write_record(result=1)
    job.end()
    await finishing

    assert follow.lines == ["hello", "last"]
    assert follow.follower.record is not None


async def test_a_last_line_without_newline(job: FakeJob, follow: Follow) -> None:
    job.write("hello\nunfinished")
    job.end("FAILED")
    await follow.follower.finish()

    assert follow.lines == ["hello", "unfinished"]
    assert follow.follower.record is None


async def test_without_a_record_the_rest_is_read(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    job.write("one\ntw")
    await until(lambda: follow.lines, "the first line")
    fake.fail("GET", TAIL, *[faults.status(500)] * 1000)
    job.end_tails()
    await until(lambda: follow.notes, "the note that the stream broke")
    job.write("o\nthree\nfour")
    job.end("STOPPED")
    await follow.follower.finish()

    assert follow.lines == ["one", "two", "three", "four"]
    assert fake.calls("GET", LOGS) == [f"GET {LOGS}"]


async def test_an_incomplete_record_is_output(job: FakeJob, follow: Follow) -> None:
    half = encode({"v": 1, "outcome": "exit", "result": "x" * 9000}).splitlines()[:2]
    job.write("hello\n" + "\n".join(half) + "\n")
    job.end("FAILED")
    await follow.follower.finish()

    assert follow.lines == ["hello", *half]


@pytest.mark.parametrize("broken", [False, True], ids=["ends early", "breaks"])
async def test_each_line_once_over_reconnects(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until, broken: bool
) -> None:
    expected = []
    for round_ in range(5):
        lines = [f"round {round_} line {number} ä🚀" for number in range(25)]
        expected += lines
        whole = len(expected) - 1
        # A stream may end in the middle of a line.
        job.write("\n".join(lines))
        await until(lambda count=whole: len(follow.lines) >= count, "all whole lines")
        job.end_tails(broken=broken)
        await until(lambda count=round_: len(fake.calls("GET", TAIL)) >= count + 2, "another stream")
        job.write("\n")
    job.write_record()
    job.end()
    await follow.follower.finish()

    assert follow.lines == expected
    assert follow.follower.record is not None


async def test_streams_that_bring_less_than_the_one_before(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    """A stream that breaks before it is where the last one was brings nothing twice, nothing too little."""
    job.write("".join(f"{number}\n" for number in range(30)))
    await until(lambda: len(follow.lines) == 30, "all lines")

    async def ten_lines(request: web.Request, _handler: Handler) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(job.log[:20])
        return socket

    fake.fail("GET", TAIL, *[ten_lines] * 3)
    job.end_tails()
    await until(lambda: len(fake.calls("GET", TAIL)) >= 5, "three short streams and a good one")
    job.write("30\n")
    await until(lambda: len(follow.lines) > 30, "the next line")

    assert follow.lines == [str(number) for number in range(31)]


async def test_the_end_of_a_stream_is_not_the_end(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    job.write("one\n")
    await until(lambda: follow.lines, "the first line")
    job.end_tails()
    job.write("two\n")
    await until(lambda: len(follow.lines) == 2, "the second line")

    assert follow.lines == ["one", "two"]
    assert follow.notes == []


async def test_trouble_with_the_stream_is_told_once(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    fake.fail("GET", TAIL, faults.status(502), faults.status(401), faults.status(500), faults.status(400))
    job.end_tails()
    job.write("one\n")
    await until(lambda: follow.lines, "the line after the trouble")

    assert len(follow.notes) == 1
    assert "cannot be followed just now" in follow.notes[0]
    assert "it will be read later" in follow.notes[0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
async def test_trouble_with_the_rest_is_only_told(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until, status: int
) -> None:
    job.write("one\ntwo")
    await until(lambda: follow.lines, "the first line")
    fake.outage(faults.status(status, "no log today"))
    job.end_tails()
    job.end("FAILED")
    await follow.follower.finish()

    assert follow.lines == ["one", "two"]
    assert "rest of the job's output could not be read" in follow.notes[-1]


async def test_a_record_in_the_middle_is_not_the_end(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    """A job that prints the log of another job, record and all."""
    job.write("log of another:\n")
    job.write_record(result="of another")
    await until(lambda: follow.follower.record, "the other's record")
    fake.fail("GET", TAIL, *[faults.status(500)] * 1000)
    job.write("and my own")
    await until(lambda: not follow.follower._complete.is_set(), "the text after it")
    job.end_tails()
    job.write(" words\n")
    job.write_record(result="my own")
    job.end()
    await follow.follower.finish()

    assert follow.lines == ["log of another:", "and my own words"]
    assert follow.follower.record is not None
    assert follow.follower.record["result"] == "my own"


async def test_a_job_without_output(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").end("FAILED", error_type="RUNTIME_ENV_SETUP_FAILURE")
    follow = Follow(client)
    await follow.follower.finish()

    assert follow.lines == follow.notes == []


async def test_finish_without_start_reads_the_log(job: FakeJob, client: RayClient) -> None:
    job.write("one\n")
    job.write_record()
    lines: list[str] = []
    follower = LogFollower(client, "j", lines.append, lines.append)
    await follower.finish()

    assert lines == ["one"]
    assert follower.record is not None


async def test_cancel_closes_the_stream(fake: FakeRay, job: FakeJob, follow: Follow, until: Until) -> None:
    await until(lambda: fake.tails == 1, "the stream")
    await follow.follower.cancel()
    await follow.follower.cancel()
    await until(lambda: fake.tails == 0, "the end of the stream")

    assert job.status == "RUNNING"
    assert fake.calls("POST") == []


async def test_a_cancelled_finish_stays_cancelled(
    fake: FakeRay, job: FakeJob, follow: Follow, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(log_follower, "RECORD_WAIT", 60)
    await until(lambda: fake.tails == 1, "the stream")
    finishing = asyncio.create_task(follow.follower.finish())
    await asyncio.sleep(0)
    finishing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert fake.calls("GET", LOGS) == []


async def test_a_silent_stream_is_opened_anew(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that died unseen is noticed by the pong that does not come; Ray sends none either way."""
    assert STREAM_SILENCE >= 300
    monkeypatch.setattr(client_module, "STREAM_SILENCE", 0.05)
    job.write("one\n")
    await until(lambda: follow.lines, "the line before the silence")
    job.end_tails()
    await until(lambda: len(fake.calls("GET", TAIL)) >= 4, "several streams")
    job.write("two\n")
    await until(lambda: len(follow.lines) == 2, "the line after the silence")

    assert follow.lines == ["one", "two"]
    assert follow.notes == []


async def test_a_large_log_does_not_take_long(fake: FakeRay, job: FakeJob, client: RayClient) -> None:
    job.write("".join(f"line {number}\n" for number in range(30_000)))
    job.write_record()
    lines: list[str] = []
    started = time.monotonic()
    await LogFollower(client, "j", lines.append, lines.append).finish()

    assert len(lines) == 30_000
    assert time.monotonic() - started < 10
