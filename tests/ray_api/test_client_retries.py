"""Which requests are repeated, how often, how late, and what is said when it was in vain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
import tenacity
from aiohttp import web

from airflow_provider_raytenant.exceptions import RayRequestError, RayUnavailableError
from airflow_provider_raytenant.local.ports import free_ports
from airflow_provider_raytenant.ray_api import client as client_module
from airflow_provider_raytenant.ray_api.client import ATTEMPTS, RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes import faults
from tests.fakes.faults import Fault, Handler
from tests.fakes.ray_server import FakeRay

TRANSIENT = {
    "dropped": faults.drop,
    "500": faults.status(500),
    "502 of a proxy": faults.status(502),
    "503": faults.status(503, "no upstream"),
    "408": faults.status(408, "slow"),
    "429": faults.status(429, "too many"),
    "broken off": faults.break_off,
    "truncated": faults.truncate,
}

HAS_PACKAGE = "GET /api/packages/gcs/p.zip"
SAFE: dict[str, Callable[[RayClient], Awaitable[object]]] = {
    "GET /api/version": lambda ray: ray.version(),
    "GET /api/v0/nodes": lambda ray: ray.nodes(),
    "GET /api/jobs/": lambda ray: ray.jobs(),
    "GET /api/jobs/j": lambda ray: ray.job("j"),
    "POST /api/jobs/j/stop": lambda ray: ray.stop("j"),
    "DELETE /api/jobs/done": lambda ray: ray.delete("done"),
    "GET /api/jobs/j/logs": lambda ray: ray.logs("j"),
    HAS_PACKAGE: lambda ray: ray.has_package("gcs://p.zip"),
    "PUT /api/packages/gcs/p.zip": lambda ray: ray.put_package("gcs://p.zip", b"content"),
}


def furnish(fake: FakeRay) -> None:
    fake.add_job("j").run()
    fake.add_job("done").end()


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT)
async def test_a_read_is_repeated_until_it_goes_well(fake: FakeRay, client: RayClient, fault: Fault) -> None:
    furnish(fake)
    fake.fail("GET", "/api/jobs/j", fault, fault)

    assert (await client.job("j")).submission_id == "j"
    assert fake.calls() == ["GET /api/jobs/j"] * 3


@pytest.mark.parametrize("call", SAFE)
async def test_what_can_be_repeated_is_repeated(fake: FakeRay, client: RayClient, call: str) -> None:
    furnish(fake)
    method, path = call.split()
    fake.fail(method, path, faults.drop, faults.status(502))

    await SAFE[call](client)

    assert fake.calls() == [call] * 3


@pytest.mark.parametrize("call", SAFE)
async def test_it_ends_after_all_attempts(fake: FakeRay, client: RayClient, call: str) -> None:
    furnish(fake)
    fake.outage(faults.status(502))

    with pytest.raises(RayUnavailableError) as caught:
        await SAFE[call](client)

    assert caught.value.details == {"status": 502}
    assert fake.calls() == [call] * ATTEMPTS


@pytest.mark.parametrize(
    ("call", "status"),
    [
        *((call, 400) for call in SAFE),
        *(("GET /api/jobs/", s) for s in (404, 405, 413, 422)),
        (HAS_PACKAGE, 404),
    ],
)
async def test_a_refused_request_is_not_repeated(
    fake: FakeRay, client: RayClient, call: str, status: int
) -> None:
    fake.outage(faults.status(status, "no, and why not"))

    if (call, status) == (HAS_PACKAGE, 404):
        assert await client.has_package("gcs://p.zip") is False
    else:
        with pytest.raises(RayRequestError, match=f"refused .*{status}.*no, and why not") as caught:
            await SAFE[call](client)
        assert caught.value.details == {"status": status}

    assert fake.calls() == [call]


async def test_a_stop_whose_answer_was_lost_is_repeated(fake: FakeRay, client: RayClient) -> None:
    furnish(fake)
    fake.fail("POST", "/api/jobs/j/stop", faults.lose_answer)

    assert await client.stop("j") is False
    assert fake.jobs["j"].status == "STOPPED"


async def test_repeats_come_later_and_later(
    fake: FakeRay, endpoint: RayEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    def uniform(_low: float, high: float) -> float:
        waits.append(high)
        return high / 20

    monkeypatch.setattr(client_module, "wait_random_exponential", tenacity.wait_random_exponential)
    monkeypatch.setattr(tenacity.wait, "random", SimpleNamespace(uniform=uniform))
    fake.outage(faults.status(502))

    async with RayClient(endpoint, attempts=6) as client:
        with pytest.raises(RayUnavailableError):
            await client.jobs()

    assert waits == sorted(waits)
    assert 0 < waits[0] <= 1 < waits[-1] <= 5
    gaps = [after.at - before.at for before, after in zip(fake.seen, fake.seen[1:], strict=False)]
    assert len(gaps) == 5
    assert all(gap >= wait / 20 * 0.9 for gap, wait in zip(gaps, waits, strict=False))


async def test_a_late_answer_ends_the_request_in_time(fake: FakeRay, endpoint: RayEndpoint) -> None:
    fake.outage(faults.delay(30))
    started = time.monotonic()

    async with RayClient(endpoint, timeout=0.15, attempts=2) as client:
        with pytest.raises(RayUnavailableError, match=r"did not answer within 0\.15 s .GET /api/version"):
            await client.version()

    assert time.monotonic() - started < 10
    assert fake.calls() == ["GET /api/version"] * 2


async def test_a_body_that_never_ends_meets_the_same_limit(fake: FakeRay, endpoint: RayEndpoint) -> None:
    async def half(request: web.Request, _handler: Handler) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        await asyncio.sleep(30)
        return response

    fake.outage(half)
    async with RayClient(endpoint, timeout=0.15, attempts=1) as client:
        with pytest.raises(RayUnavailableError, match=r"within 0\.15 s"):
            await client.version()


@pytest.mark.parametrize("call", ["PUT /api/packages/gcs/p.zip", "GET /api/jobs/j/logs"])
async def test_a_transfer_may_take_longer(fake: FakeRay, endpoint: RayEndpoint, call: str) -> None:
    furnish(fake)
    method, path = call.split()
    fake.fail(method, path, faults.delay(0.4))

    async with RayClient(endpoint, timeout=0.15) as client:
        await SAFE[call](client)

    assert fake.calls() == [call]


async def test_a_page_of_a_proxy_is_told_short_and_on_one_line(fake: FakeRay, client: RayClient) -> None:
    fake.outage(faults.status(502))

    with pytest.raises(RayUnavailableError) as caught:
        await client.job("j")

    message = str(caught.value)
    assert message.startswith(f"Ray at {fake.address} answered 502: <html> <head><title>502</title>")
    assert "\n" not in message
    assert len(message) < 400


async def test_truncated_json_is_told_short(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j", entrypoint="x" * 5000)
    fake.outage(faults.truncate)

    with pytest.raises(RayUnavailableError) as caught:
        await client.job("j")

    assert 'gave no JSON for /api/jobs/j: \'{"type": "SUBMISSION"' in str(caught.value)
    assert len(str(caught.value)) < 450


async def test_nobody_listens() -> None:
    (port,) = free_ports(1)

    async with RayClient(RayEndpoint(f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(RayUnavailableError, match=f"Ray at http://127.0.0.1:{port} cannot be reached"):
            await client.version()
