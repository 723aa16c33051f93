"""A watch keeps deadlines, finds out records that lie, and leaves a job alone when it is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from airflow_provider_raytenant.domain.lifecycle import TIMEOUT_GRACE, WAITING_STOP_PATIENCE
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobLostError,
    JobStartTimeoutError,
    JobTimeoutError,
)
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.tickets import ticket_package
from tests.fakes import faults
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Clock, Until
from tests.ray_api.test_watch import submitted
from tests.ray_api.watching import Watched, following


async def test_the_deadline_is_kept_from_here_if_the_runner_does_not(
    fake: FakeRay, client: RayClient, clock: Clock, until: Until
) -> None:
    watched = Watched(client, job_timeout=100, queue_timeout=None)
    job = await submitted(fake, until)

    async def polls(count: int) -> None:
        polled = len(fake.calls("GET", "/api/jobs/j"))
        await until(lambda: len(fake.calls("GET", "/api/jobs/j")) > polled + count, f"{count} polls")

    await polls(1)
    clock.now += 10_000  # waiting in Ray is not running
    await polls(2)
    job.run()
    await until(lambda: watched.noted("is RUNNING"), "the note of RUNNING")
    clock.now += 100 + TIMEOUT_GRACE - 1
    await polls(2)
    assert not job.stop_asked
    clock.now += 2

    error = (await watched.outcome()).error
    assert isinstance(error, JobTimeoutError)
    assert str(error) == "job j ran longer than its job_timeout of 100 s, and was stopped"
    assert error.details == {"deadline": "job_timeout", "seconds": 100}
    assert job.status == "STOPPED"
    assert watched.noted("ran longer than its job_timeout of 100 s: stopping it.")
    assert not following()


async def test_a_job_that_waits_too_long_loses_its_ticket_and_the_task_goes_on(
    fake: FakeRay, client: RayClient, clock: Clock, until: Until
) -> None:
    watched = Watched(client, queue_timeout=60)
    job = await submitted(fake, until)
    await until(lambda: watched.noted("is PENDING"), "the note of PENDING")
    clock.now += 61
    await until(lambda: job.stop_asked, "the stop")
    assert ticket_package("j", valid=False).content in fake.packages.values()
    clock.now += WAITING_STOP_PATIENCE

    error = (await watched.outcome()).error
    assert isinstance(error, JobStartTimeoutError)
    assert "queue_timeout of 60 s, and will end without running" in str(error)


async def test_execution_timeout_counts_from_the_start_of_the_task(
    fake: FakeRay, client: RayClient, clock: Clock, until: Until
) -> None:
    watched = Watched(client, execution_timeout=300, prepared_at=clock.now - 250)
    job = await submitted(fake, until)
    job.run()
    await until(lambda: watched.noted("is RUNNING"), "the note of RUNNING")
    clock.now += 51

    error = (await watched.outcome()).error
    assert isinstance(error, JobTimeoutError)
    assert error.details == {"deadline": "execution_timeout", "seconds": 300}
    assert job.status == "STOPPED"


async def test_a_record_that_lies_is_found_out(
    fake: FakeRay, client: RayClient, clock: Clock, until: Until
) -> None:
    """RUNNING for ever, and no supervisor: Ray is asked to look; if that does not help, the job is lost."""
    watched = Watched(client)
    job = await submitted(fake, until)
    job.stops = False
    job.supervised = False
    job.run()
    await until(lambda: watched.noted("is RUNNING"), "the note of RUNNING")
    for _ in range(30):
        clock.now += 5
        polled = len(fake.seen)
        await until(lambda n=polled: watched.task.done() or len(fake.seen) > n + 1, "a look")
        if watched.task.done():
            break

    error = (await watched.outcome()).error
    assert isinstance(error, JobLostError)
    assert error.details == {"lost": "supervisor"}
    assert watched.noted("its supervisor is dead; asking it to look")
    assert len(fake.calls("POST", "/api/jobs/j/stop")) == 1


async def test_a_cancelled_watch_leaves_the_job_alone(fake: FakeRay, client: RayClient, until: Until) -> None:
    watched = Watched(client)
    job = await submitted(fake, until)
    job.run()
    await until(following, "the follower")
    watched.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watched.outcome()

    assert not following()
    assert JobStatus(job.status) is JobStatus.RUNNING
    assert not job.stop_asked
    assert fake.calls("POST") == ["POST /api/jobs/"]
    assert len(asyncio.all_tasks()) < 10


async def test_a_watch_cancelled_at_the_end_follows_no_more(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    watched = Watched(client)
    job = await submitted(fake, until)
    job.run()
    await until(following, "the follower")
    fake.fail("GET", "/api/v0/logs/file", *[faults.hang] * 10)
    job.end()
    await until(lambda: watched.noted("is SUCCEEDED"), "the last reading")
    watched.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watched.outcome()

    assert not following()


async def test_a_watch_cancelled_in_an_outage(fake: FakeRay, client: RayClient, until: Until) -> None:
    fake.outage(faults.drop)
    watched = Watched(client)
    await until(lambda: watched.noted("cannot be reached"), "the note of the outage")
    watched.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await watched.outcome()
