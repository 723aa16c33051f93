"""Each line of a job's output once and in order, the end record apart, whatever becomes of the readings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.ray_api import log_follower
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.log_position import LogPosition
from airflow_provider_raytenant.ray_api.log_reads import LogReads
from airflow_provider_raytenant.runner.end_record import encode
from tests.fakes import faults
from tests.fakes.faults import Fault
from tests.fakes.ray_server import HEAD, FakeJob, FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.following import FILE, TEXT, Follow


@pytest.fixture
def job(fake: FakeRay) -> FakeJob:
    job = fake.add_job("j")
    job.run()
    return job


@pytest.fixture
async def follow(client: RayClient, job: FakeJob) -> AsyncIterator[Follow]:
    following = Follow(client).start()
    yield following
    await following.follower.cancel()


async def test_lines_come_while_they_are_written(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    for number in range(3):
        job.write(f"line {number}\n")
        await until(lambda count=number: len(follow.lines) == count + 1, "the line")

    assert follow.lines == ["line 0", "line 1", "line 2"]
    assert follow.notes == []
    assert fake.calls("GET", TEXT) == []


async def test_a_line_in_pieces_comes_whole(job: FakeJob, follow: Follow, until: Until) -> None:
    job.write("first\nbegin ")
    await until(lambda: follow.lines, "the first line")
    job.write("middle ")
    job.write("end\nnext")
    await until(lambda: len(follow.lines) == 2, "the second line")

    assert follow.lines == ["first", "begin middle end"]


async def test_long_empty_and_unusual_lines(job: FakeJob, follow: Follow) -> None:
    unusual = [
        "\ttab\x0bform\x0c",
        "  äöü 日本 🚀",
        "a\u2028b\x85c",
        "10%\r20%\rdone",
        "dos\r",
        "\x1b[31mred",
    ]
    lines = ["x" * 3_000_000, "", "", *unusual, "", "last", ""]
    job.write("".join(f"{line}\n" for line in lines))
    job.write_record()
    job.end()

    assert await follow.finish() == lines
    assert follow.follower.record is not None
    assert follow.notes == []


async def test_what_is_no_utf8_is_replaced(job: FakeJob, follow: Follow) -> None:
    job.write(b"before\ncaf\xe9 \xe6\x97\nafter\n")
    job.end()

    assert await follow.finish() == ["before", "caf\ufffd \ufffd", "after"]


async def test_the_record_is_taken_out(fake: FakeRay, job: FakeJob, follow: Follow) -> None:
    job.write("hello\n")
    job.write_record(result={"rows": [1, 2, 3], "text": "x" * 20_000})
    job.end()

    assert await follow.finish() == ["hello"]
    assert follow.follower.record is not None
    assert follow.follower.record["result"]["rows"] == [1, 2, 3]


async def test_the_record_comes_a_little_late(
    fake: FakeRay, job: FakeJob, client: RayClient, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor was killed: its driver goes on for a moment, and its runner tells the end."""
    monkeypatch.setattr(log_follower, "_LATE", 0.2)
    job.write("hello\nunfini")
    job.end("FAILED")
    follow = Follow(client)
    finishing = asyncio.create_task(follow.finish())
    await until(lambda: fake.calls("GET", FILE), "the first reading")
    await until(lambda: follow.lines, "the first line")
    job.write("shed")
    job.write_record()

    assert await finishing == ["hello", "unfinished"]
    assert follow.follower.record is not None


async def test_a_last_line_without_newline(job: FakeJob, follow: Follow) -> None:
    job.write("hello\nunfinished")
    job.end("FAILED")

    assert await follow.finish() == ["hello", "unfinished"]
    assert follow.follower.record is None


async def test_an_incomplete_record_is_output(job: FakeJob, follow: Follow) -> None:
    half = encode({"v": 1, "outcome": "exit", "result": "x" * 9000}).splitlines()[:2]
    job.write("hello\n" + "\n".join(half) + "\n")
    job.end("FAILED")

    assert await follow.finish() == ["hello", *half]


async def test_a_record_in_the_middle_is_not_the_end(job: FakeJob, follow: Follow, until: Until) -> None:
    """A job that prints the log of another job, record and all."""
    job.write("log of another:\n")
    job.write_record(result="of another")
    await until(lambda: follow.follower.record, "the other's record")
    job.write("and my own words\n")
    job.write_record(result="my own")
    job.end()

    assert await follow.finish() == ["log of another:", "and my own words"]
    assert follow.follower.record is not None
    assert follow.follower.record["result"] == "my own"


TROUBLE: dict[str, Fault] = {
    "pieces": faults.dribble(7),
    "cut at an odd byte": faults.dribble(3, 17, broken=True),
    "short": faults.dribble(5, 11),
    "empty": faults.dribble(5, 0),
    "dropped": faults.drop,
    "too many calls": faults.status(429),
    "502": faults.status(502),
    "401": faults.status(401),
    "a page instead": faults.answer("<html>log in</html>", "text/html"),
}


@pytest.mark.parametrize("name", TROUBLE)
@pytest.mark.parametrize("text_too", [False, True], ids=["file only", "both"])
async def test_each_line_once_over_any_trouble(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until, name: str, text_too: bool
) -> None:
    expected = []
    for round_ in range(4):
        lines = [f"round {round_} line {number} ä🚀" for number in range(25)]
        expected += lines
        # A reading may end in the middle of a line.
        fake.fail("GET", FILE, *[TROUBLE[name]] * 3)
        if text_too:
            fake.fail("GET", TEXT, *[faults.status(500)] * 20)
        job.write("\n".join(lines))
        whole = len(expected) - 1
        await until(lambda whole=whole: len(follow.lines) >= whole, "all whole lines")
        job.write("\n")
    job.write_record()
    job.end()

    assert await follow.finish() == expected
    assert follow.follower.record is not None


async def test_the_jobs_api_serves_where_the_state_api_does_not(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    fake.fail("GET", FILE, *[faults.status(429)] * 10_000)
    job.write("one\r\ntwo\n")
    await until(lambda: len(follow.lines) == 2, "the lines")
    job.write("three")
    job.end("FAILED")

    assert await follow.finish() == ["one", "two", "three"]
    assert follow.notes == []


@pytest.mark.parametrize("node_id", [None, "a node that is gone"])
async def test_without_the_drivers_node(
    fake: FakeRay, job: FakeJob, client: RayClient, node_id: str | None
) -> None:
    job.write("one\ntwo\n")
    job.write_record()

    assert await Follow(client).finish(node_id) == ["one", "two"]


async def test_trouble_is_told_once(fake: FakeRay, job: FakeJob, follow: Follow, until: Until) -> None:
    for _ in range(2):
        fake.outage(faults.status(502))
        begun = len(fake.calls("GET", FILE))
        await until(lambda begun=begun: len(fake.calls("GET", FILE)) > begun + 5, "some attempts")
        fake.outage(None)
        job.write("a line\n")
        await until(lambda: job.output.count(b"\n") == len(follow.lines), "the line after the trouble")

    assert len(follow.notes) == 1
    assert follow.noted("cannot be followed just now")
    assert follow.noted("it will be read later")


async def test_one_failure_alone_is_not_told(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    for path in (FILE, TEXT):
        fake.fail("GET", path, faults.status(502))
    job.write("a line\n")
    await until(lambda: follow.lines, "the line")

    assert follow.notes == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
async def test_trouble_with_the_rest_is_only_told(
    fake: FakeRay, job: FakeJob, client: RayClient, until: Until, status: int
) -> None:
    follow = Follow(client, rest="http://ray.example/j").start()
    job.write("one\ntwo")
    await until(lambda: follow.lines, "the first line")
    fake.outage(faults.status(status, "no log today"))
    job.end("FAILED")

    # What was read of the last line is better than nothing of it.
    assert await follow.finish() == ["one", "two"]
    assert "rest of the job's output could not be read" in follow.notes[-1]
    assert follow.notes[-1].endswith("; see http://ray.example/j")


async def test_a_node_that_hangs(fake: FakeRay, job: FakeJob, client: RayClient) -> None:
    job.write("one\n")
    job.write_record()
    fake.fail("GET", FILE, *[faults.hang] * 100)
    async with RayClient(client.endpoint, timeout=0.05, attempts=1) as impatient:
        follow = Follow(impatient)

        assert await follow.finish() == ["one"]


async def test_a_job_without_output(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").end("FAILED", error_type="RUNTIME_ENV_SETUP_FAILURE")
    follow = Follow(client)

    assert await follow.finish(None) == []
    assert follow.said == []


async def test_cancel_leaves_the_job_alone(fake: FakeRay, job: FakeJob, follow: Follow, until: Until) -> None:
    await until(lambda: fake.calls("GET", FILE), "a reading")
    await follow.follower.cancel()
    await follow.follower.cancel()
    read = len(fake.calls("GET", FILE))
    follow.follower.start(HEAD)
    await asyncio.sleep(0.05)

    assert len(fake.calls("GET", FILE)) <= read + 1
    assert job.status == "RUNNING"
    assert fake.calls("POST") == []


async def test_a_cancelled_finish_stays_cancelled(
    fake: FakeRay, job: FakeJob, client: RayClient, until: Until
) -> None:
    fake.fail("GET", FILE, *[faults.hang] * 10)
    finishing = asyncio.create_task(Follow(client).finish())
    await until(lambda: fake.calls("GET", FILE), "the reading")
    finishing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert fake.calls("GET", TEXT) == []


async def test_what_emit_raises_comes_out(job: FakeJob, client: RayClient) -> None:
    job.write("one\n")

    def refuse(_line: str) -> None:
        raise ValueError("no room")

    follower = log_follower.LogFollower(client, "j", refuse, print, reads=LogReads())
    with pytest.raises(ValueError, match="no room"):
        await follower.finish(HEAD)


async def test_a_large_log_does_not_take_long(job: FakeJob, client: RayClient) -> None:
    job.write("".join(f"line {number}\n" for number in range(30_000)))
    job.write_record()
    started = time.monotonic()

    assert len(await Follow(client).finish()) == 30_000
    assert time.monotonic() - started < 10


async def test_a_large_log_that_rests_is_not_read_again(
    fake: FakeRay, job: FakeJob, follow: Follow, until: Until
) -> None:
    lines = [f"line {number}" for number in range(50_000)]
    job.write("".join(f"{line}\n" for line in lines))
    await until(lambda: len(follow.lines) == len(lines), "all lines")
    begun = len(fake.seen)
    await until(lambda: len(fake.seen) > begun + 20, "more looks")
    assert sum(seen.query.get("lines") == "-1" for seen in fake.seen[begun:]) <= 1

    job.write("one more\n")
    await until(lambda: follow.lines[-1] == "one more", "the next line")
    assert len(follow.lines) == len(lines) + 1


async def test_a_large_log_that_goes_on_as_it_ended(
    job: FakeJob, follow: Follow, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last lines look as if nothing had come; that is believed for a while only."""
    monkeypatch.setattr(log_follower, "_UNPROBED", 0.2)
    job.write("the same line\n" * 30_000)
    await until(lambda: len(follow.lines) == 30_000, "all lines")
    await asyncio.sleep(0.1)
    job.write("the same line\n" * 3)
    await until(lambda: len(follow.lines) == 30_003, "the lines after the rest")


WORDS = [b"\n", b"\r", b"\r\n", b"a", "ä🚀".encode(), b"\xff", b"\n" * 3, b" x" * 300]
GOOD = [faults.passes, faults.dribble(9)]
BAD = [faults.drop, faults.status(500), faults.dribble(1, 40, broken=True)]
# No more bad ones than the attempts at the job's end bear.
TROUBLE_AT_ANY_TIME = st.tuples(
    st.lists(st.sampled_from(GOOD), max_size=6), st.lists(st.sampled_from(BAD), max_size=3)
).flatmap(lambda some: st.permutations(some[0] + some[1]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(b"".join), min_size=1, max_size=6),
    TROUBLE_AT_ANY_TIME,
    st.sets(st.integers(0, 5)),
)
def test_followers_one_after_the_other(steps: list[bytes], trouble: list[Fault], changes: set[int]) -> None:
    """Whatever is written, whatever fails, whenever a follower is cancelled and another goes on."""

    async def lines() -> list[str]:
        found: list[str] = []
        position: LogPosition | None = None
        async with FakeRay() as fake, RayClient(RayEndpoint(fake.address), attempts=1) as client:
            job = fake.add_job("j")
            job.run()
            fake.fail("GET", FILE, *trouble)
            fake.fail("GET", TEXT, *[faults.status(500)] * 1000)
            follow = Follow(client).start()
            for number, written in enumerate(steps):
                read = len(fake.seen)
                job.write(written)
                while len(fake.seen) < read + 2:
                    await asyncio.sleep(0.001)
                if number in changes:
                    await follow.follower.cancel()
                    found += follow.lines
                    position = follow.saved[-1] if follow.saved else position
                    assert position is None or position.exact
                    follow = Follow(client, resume=position).start()
            job.end()
            return found + await follow.finish()

    whole = b"".join(steps).decode("utf-8", "replace")
    expected = whole.removesuffix("\n").split("\n") if whole else []
    assert asyncio.run(asyncio.wait_for(lines(), 60)) == expected
