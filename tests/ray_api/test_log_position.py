"""Who follows a job after another repeats nothing, or little and says so; who cannot save only says so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airflow_provider_raytenant.ray_api import log_position
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.log_position import LogPosition
from tests.fakes import faults
from tests.fakes.ray_server import FakeJob, FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.following import FILE, Follow


@pytest.fixture
def job(fake: FakeRay) -> FakeJob:
    job = fake.add_job("j")
    job.run()
    return job


def test_json_there_and_back() -> None:
    for position in (LogPosition(), LogPosition(12_345_678_901, exact=True)):
        assert LogPosition.from_json(json.loads(json.dumps(position.to_json()))) == position


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, 7, "x", [], {}, {"size": 1}, {"size": -1, "exact": True}, {"size": True, "exact": True}),
        *({"size": 1, "exact": 1}, {"size": "1", "exact": False}),
    ],
)
def test_what_is_no_position(wrong: Any) -> None:
    assert LogPosition.from_json(wrong) is None


async def test_after_an_orderly_end_nothing_is_repeated(
    job: FakeJob, client: RayClient, until: Until
) -> None:
    job.write("one\r\ntwo\nthr")
    first = Follow(client).start()
    await until(lambda: len(first.lines) == 2, "two lines")
    await first.follower.cancel()

    assert first.said == [LogPosition(0), "one\r", "two", LogPosition(8, exact=True)]

    job.write("ee\nfour\n")
    job.write_record()
    job.end()
    second = Follow(client, resume=first.saved[-1])
    await second.finish()

    assert second.said == [
        LogPosition(8),
        "# Going on with the job's output at byte 8.",
        "three",
        "four",
        LogPosition(19, exact=True),
    ]
    assert second.follower.record is not None


async def test_after_a_kill_what_may_be_repeated_is_marked(
    job: FakeJob, client: RayClient, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_position, "SAVE_EVERY", 0.01)
    job.write("one\ntwo\n")
    first = Follow(client).start()
    await until(lambda: LogPosition(8) in first.saved, "a save while it follows")
    monkeypatch.setattr(log_position, "SAVE_EVERY", 60)
    job.write("three\n")
    await until(lambda: len(first.lines) == 3, "the next line")
    killed = list(first.saved)
    job.end()
    second = Follow(client, resume=killed[-1])
    await second.finish()
    await first.follower.cancel()

    assert killed == [LogPosition(0), LogPosition(8)]
    note = (
        "# Going on with the job's output at byte 8; up to 5 s of it may be repeated here, as a triggerer "
        "was killed."
    )
    assert second.said == [note, "three", LogPosition(14, exact=True)]


async def test_a_kill_before_the_first_regular_save_is_marked_too(
    job: FakeJob, client: RayClient, until: Until
) -> None:
    job.write("one\n")
    first = Follow(client).start()
    await until(lambda: first.lines, "the line")
    killed = list(first.saved)
    await first.follower.cancel()
    job.end()
    second = Follow(client, resume=killed[-1])
    await second.finish()

    assert killed == [LogPosition(0)]
    assert second.noted("byte 0; up to 5 s")
    assert second.lines == ["one"]


async def test_a_kill_after_an_orderly_change_is_marked_too(
    job: FakeJob, client: RayClient, until: Until
) -> None:
    job.write("one\n")
    second = Follow(client, resume=LogPosition(0, exact=True)).start()
    await until(lambda: second.lines, "the line")
    killed = list(second.saved)
    await second.follower.cancel()

    assert killed == [LogPosition(0, exact=False)]


async def test_nothing_new_is_not_spoken_of(job: FakeJob, client: RayClient, until: Until) -> None:
    job.write("one\n")
    first = Follow(client).start()
    await until(lambda: first.lines, "the line")
    job.write_record()
    job.end()
    await first.finish()
    second = Follow(client, resume=first.saved[-1])
    await second.finish()
    await second.follower.cancel()

    assert second.lines == []
    assert second.notes == []
    assert second.follower.record is not None


async def test_a_job_that_was_not_followed_is_not_held_up_by_saves(job: FakeJob, client: RayClient) -> None:
    job.write("one\n")
    job.write_record()
    job.end()
    only = Follow(client)
    await only.finish()

    assert only.lines == ["one"]
    assert only.saved == []


async def test_the_record_is_found_before_the_position_too(
    job: FakeJob, client: RayClient, until: Until
) -> None:
    """Ray wrote its own "Running entrypoint" behind all that a short job wrote."""
    job.write("one\n")
    first = Follow(client).start()
    await until(lambda: first.lines, "the line")
    job.write_record(result=7)
    job.write("Running entrypoint for job j\n")
    job.end()
    await first.finish()
    assert first.saved[-1] == LogPosition(len(job.output), exact=True)
    second = Follow(client, resume=first.saved[-1])
    await second.finish()

    assert second.lines == second.notes == []
    assert second.follower.record == first.follower.record is not None


async def test_silence_saves_nothing(fake: FakeRay, job: FakeJob, client: RayClient, until: Until) -> None:
    follow = Follow(client).start()
    await until(lambda: len(fake.calls("GET", FILE)) > 3, "some readings")
    await follow.follower.cancel()

    assert follow.saved == []


async def test_while_output_comes_it_is_saved_now_and_then(
    job: FakeJob, client: RayClient, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_position, "SAVE_EVERY", 0.05)
    follow = Follow(client).start()
    started = asyncio.get_running_loop().time()
    for number in range(40):
        job.write(f"{number}\n")
        await until(lambda number=number: len(follow.lines) > number, "the line")
    took = asyncio.get_running_loop().time() - started
    regular = [position.size for position in follow.saved[1:]]
    await follow.follower.cancel()

    assert regular == sorted(set(regular))
    assert len(regular) <= took / 0.05
    assert follow.saved[-1] == LogPosition(len(job.output), exact=True)


class Stubborn:
    """A place to save to that gives trouble."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.calls = 0

    async def __call__(self, _position: LogPosition) -> None:
        self.calls += 1
        if self.kind == "hangs":
            await asyncio.Event().wait()
        raise ValueError("the database is away")


@pytest.mark.parametrize(("kind", "why"), [("hangs", "it takes too long"), ("fails", "the database is away")])
async def test_trouble_with_saving_is_told_once(
    job: FakeJob, client: RayClient, until: Until, monkeypatch: pytest.MonkeyPatch, kind: str, why: str
) -> None:
    monkeypatch.setattr(log_position, "SAVE_EVERY", 0.01)
    monkeypatch.setattr(log_position, "SAVE_PATIENCE", 0.02)
    save = Stubborn(kind)
    follow = Follow(client, save=save).start()
    for number in range(3):
        job.write(f"{number}\n")
        await until(lambda number=number: len(follow.lines) > number, "the line")
        await until(lambda number=number: save.calls > number, "another attempt")
    await asyncio.wait_for(follow.follower.cancel(), 5)

    assert follow.lines == ["0", "1", "2"]
    assert len(follow.notes) == 1
    assert why in follow.notes[0]
    assert "more of it may be repeated" in follow.notes[0]


async def test_a_follower_cancelled_while_it_saves_loses_nothing(
    job: FakeJob, client: RayClient, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_position, "SAVE_PATIENCE", 0.2)
    save = Stubborn("hangs")
    job.write("one\ntwo\n")
    first = Follow(client, save=save).start()
    await until(lambda: save.calls, "the first save")
    await first.follower.cancel()
    position = LogPosition(first.follower.position)
    job.end()

    assert first.lines + await Follow(client, resume=position).finish() == ["one", "two"]


async def test_a_log_that_is_shorter_than_it_was(fake: FakeRay, job: FakeJob, client: RayClient) -> None:
    """Nothing is handed on that cannot be what followed."""
    job.write("one\n")
    job.end()
    fake.fail("GET", FILE, *[faults.passes] * 3)
    follow = Follow(client, resume=LogPosition(100))

    assert await follow.finish() == []
    assert follow.noted("shorter than what had been read of it before")
