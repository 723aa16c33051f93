"""Token and headers show nowhere: no message, no representation, no traceback, no pickle."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace

import pytest

from airflow_provider_raytenant.domain.lifecycle import Limits
from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.log_follower import LogFollower
from airflow_provider_raytenant.ray_api.log_reads import LogReads
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings
from tests.fakes import faults
from tests.fakes.faults import Fault
from tests.fakes.ray_server import HEAD, FakeRay
from tests.ray_api.contract import TOKEN
from tests.ray_api.watching import shared

HEADER = "a-header-that-nobody-may-see"

TROUBLE = {
    "dropped": faults.drop,
    "401": faults.status(401, "Unauthorized"),
    "403": faults.status(403, "Forbidden"),
    "400": faults.status(400, "Bad"),
    "404": faults.status(404, "Job j does not exist"),
    "500": faults.status(500),
    "truncated": faults.truncate,
    "broken off": faults.break_off,
    "late": faults.delay(30),
    "other": faults.answer("<html>log in</html>"),
}


@pytest.fixture
def endpoint(fake: FakeRay) -> RayEndpoint:
    return RayEndpoint(fake.address, token=TOKEN, headers={"X-Proxy-Key": HEADER})


def texts_of(error: BaseException) -> str:
    """All that may be shown of an error and of what caused it."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(pickle.dumps(error))


def assert_hidden(text: str) -> None:
    assert text
    for secret in (TOKEN, HEADER):
        assert secret not in text


def test_no_representation_shows_them(endpoint: RayEndpoint) -> None:
    assert_hidden(repr(endpoint) + str(endpoint) + repr(RayClient(endpoint)))
    assert_hidden(endpoint.job_page("j"))


@pytest.mark.parametrize("fault", TROUBLE.values(), ids=TROUBLE)
async def test_no_error_shows_them(fake: FakeRay, endpoint: RayEndpoint, fault: Fault) -> None:
    fake.outage(fault)
    async with RayClient(endpoint, timeout=0.1, attempts=1) as client:
        calls = [client.job("j"), client.jobs(), client.nodes(), client.version(), client.stop("j")]
        calls.append(client.submit({"submission_id": "j", "entrypoint": "true"}))
        for call in calls:
            with pytest.raises(RayTenantError) as caught:
                await call
            assert_hidden(texts_of(caught.value))


@pytest.mark.parametrize("kind", ["dropped", "401", "403", "404", "500", "other"])
async def test_no_error_of_a_log_file_shows_them(fake: FakeRay, endpoint: RayEndpoint, kind: str) -> None:
    fake.outage(TROUBLE[kind])
    async with RayClient(endpoint) as client:
        with pytest.raises(RayTenantError) as caught:
            [piece async for piece in client.log_file("j", HEAD)]
    assert_hidden(texts_of(caught.value))


async def test_no_note_shows_them(fake: FakeRay, endpoint: RayEndpoint) -> None:
    said: list[str] = []
    fake.add_job("j").end()
    fake.fail("POST", "/api/jobs/", faults.status(502))
    fake.fail("GET", "/api/v0/logs/file", faults.status(403), faults.drop)
    fake.fail("GET", "/api/jobs/j/logs", *[faults.status(401)] * 4)
    async with RayClient(endpoint, attempts=1) as client:
        request = {"submission_id": "j", "entrypoint": "true"}
        await JobWatch(
            shared(client), request, WatchSettings(Limits(poll_interval=0.01)), said.append, said.append
        ).run()
        follower = LogFollower(client, "nope", said.append, said.append, reads=LogReads())
        follower.start(HEAD)
        await follower.finish(HEAD)

    assert any("could not be read" in text for text in said)
    assert_hidden("".join(said))


async def test_the_error_of_nobody_there_hides_them(endpoint: RayEndpoint) -> None:
    async with RayClient(replace(endpoint, address="http://127.0.0.1:1"), attempts=1) as client:
        with pytest.raises(RayTenantError) as caught:
            await client.version()
    assert_hidden(texts_of(caught.value))
