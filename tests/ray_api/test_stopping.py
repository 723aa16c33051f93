"""Stopping a job means seeing it end, within a bound."""

from __future__ import annotations

import asyncio
import io
import json
import time
import zipfile

import pytest

from airflow_provider_raytenant.exceptions import RayAuthError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.stopping import stop_job
from airflow_provider_raytenant.ray_api.tickets import issue_ticket, ticket_package
from airflow_provider_raytenant.runner.ticket import FILE, FOLDER
from tests.fakes import faults
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Until

STOP = "POST /api/jobs/j/stop"


async def test_a_running_job_is_stopped(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").run()

    assert await stop_job(client, "j")
    assert fake.jobs["j"].status == "STOPPED"
    assert fake.calls("POST") == [STOP]


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED"])
async def test_a_job_that_has_ended_is_left_alone(fake: FakeRay, client: RayClient, status: str) -> None:
    fake.add_job("j").end(status)

    assert await stop_job(client, "j")
    assert fake.calls("POST") == []


async def test_an_unknown_job_has_ended(fake: FakeRay, client: RayClient) -> None:
    assert await stop_job(client, "j")


async def test_a_job_that_vanishes_has_ended(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").run()
    fake.fail("POST", "/api/jobs/j/stop", faults.status(404, "Job j does not exist"))

    assert await stop_job(client, "j")


async def test_a_pending_job_is_followed_until_it_stops(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    """Ray starts a PENDING job that was stopped, and stops it then."""
    job = fake.add_job("j")
    stopping = asyncio.create_task(stop_job(client, "j"))
    await until(lambda: len(fake.calls("POST")) >= 3, "several stops")
    assert not stopping.done()
    job.run()

    assert await asyncio.wait_for(stopping, 20)
    assert job.status == "STOPPED"


async def test_outages_are_survived(fake: FakeRay, client: RayClient, until: Until) -> None:
    fake.add_job("j").run()
    fake.outage(faults.status(502))
    stopping = asyncio.create_task(stop_job(client, "j"))
    await until(lambda: len(fake.seen) > 10, "requests in vain")
    fake.outage(faults.drop)
    await until(lambda: len(fake.seen) > 20, "more of them")
    fake.outage(None)

    assert await asyncio.wait_for(stopping, 20)
    assert fake.jobs["j"].status == "STOPPED"


async def test_a_stop_that_ray_refuses_for_a_while(fake: FakeRay, client: RayClient) -> None:
    """500 is what the head gives while its agent is away."""
    fake.add_job("j").run()
    fake.fail("POST", "/api/jobs/j/stop", *[faults.status(500, "No available agent")] * 6)

    assert await stop_job(client, "j")


async def test_it_gives_up_in_time(fake: FakeRay, client: RayClient) -> None:
    job = fake.add_job("j")
    job.stops = False
    job.run()
    started = time.monotonic()

    assert not await stop_job(client, "j", patience=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    assert len(fake.calls("POST")) > 1


@pytest.mark.parametrize("path", ["/api/jobs/j", "/api/jobs/j/stop"])
async def test_it_gives_up_in_time_when_the_dashboard_hangs(
    fake: FakeRay, client: RayClient, path: str
) -> None:
    """A request may take longer than the patience by itself, and be repeated."""
    job = fake.add_job("j")
    job.stops = False
    job.run()
    fake.fail("POST" if path.endswith("stop") else "GET", path, *[faults.delay(30)] * 9)
    started = time.monotonic()

    assert not await stop_job(client, "j", patience=0.3)
    assert time.monotonic() - started < 5


async def test_its_patience_is_shorter_than_airflows(fake: FakeRay) -> None:
    """``[triggerer] on_kill_timeout`` is 30 s."""
    defaults = stop_job.__kwdefaults__
    assert defaults is not None
    assert 10 < defaults["patience"] < 28


async def test_a_refusal_is_told(fake: FakeRay, client: RayClient) -> None:
    fake.token = "changed"
    with pytest.raises(RayAuthError):
        await stop_job(client, "j")


async def test_being_cancelled_ends_it(fake: FakeRay, client: RayClient, until: Until) -> None:
    job = fake.add_job("j")
    job.stops = False
    job.run()
    stopping = asyncio.create_task(stop_job(client, "j"))
    await until(lambda: fake.calls("POST"), "a stop")
    stopping.cancel()

    with pytest.raises(asyncio.CancelledError):
        await stopping


async def test_a_submit_that_arrives_late_is_stopped_all_the_same(fake: FakeRay, client: RayClient) -> None:
    stopping = asyncio.create_task(stop_job(client, "late", patience=20, settle=10))
    await asyncio.wait_for(_seen(fake, 2), 10)
    job = fake.add_job("late")
    job.run()

    assert await stopping
    assert fake.jobs["late"].status == "STOPPED"


async def _seen(fake: FakeRay, count: int) -> None:
    while len(fake.calls("GET")) < count:
        await asyncio.sleep(0.01)


def _ticket(fake: FakeRay, name: str) -> dict[str, object] | None:
    """What the ticket of a job says on the fake cluster."""
    content = fake.packages.get(ticket_package(name).uri)
    if content is None:
        return None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return dict(json.loads(archive.read(f"{FOLDER}/{FILE}")))


async def test_a_job_that_waits_loses_its_ticket_before_it_is_stopped(
    fake: FakeRay, client: RayClient
) -> None:
    fake.add_job("j")
    await issue_ticket(client, "j")
    assert _ticket(fake, "j") == {"submission_id": "j", "valid": True}

    assert not await stop_job(client, "j", patience=0.3)
    assert _ticket(fake, "j") == {"submission_id": "j", "valid": False}
    uri = ticket_package("j").uri.rpartition("/")[2]
    changes = [call for call in fake.calls() if not call.startswith("GET")]
    assert changes[:3] == [f"PUT /api/packages/gcs/{uri}"] * 2 + [STOP]


async def test_a_job_that_runs_keeps_what_is_left_of_its_ticket(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").run()

    assert await stop_job(client, "j")
    assert _ticket(fake, "j") is None


async def test_a_job_whose_submit_is_under_way_will_find_no_ticket(fake: FakeRay, client: RayClient) -> None:
    assert await stop_job(client, "j")
    assert _ticket(fake, "j") == {"submission_id": "j", "valid": False}


async def test_a_waiting_job_counts_as_ended_after_a_while_only_if_its_ticket_is_gone(
    fake: FakeRay, client: RayClient
) -> None:
    fake.add_job("j")
    fake.fail("PUT", "/api/packages/.*", *[faults.status(500)] * 4)

    assert await stop_job(client, "j", patience=20, waiting=0.1)
    assert _ticket(fake, "j") == {"submission_id": "j", "valid": False}
    assert fake.jobs["j"].status == "PENDING"


async def test_a_running_job_never_counts_as_ended(fake: FakeRay, client: RayClient) -> None:
    job = fake.add_job("j")
    job.stops = False
    job.run()

    assert not await stop_job(client, "j", patience=0.7, waiting=0.1)
