"""The proxy itself, before a fake dashboard: it needs no services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from airflow_provider_raytenant.exceptions import JobNotFoundError, RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from stack.fault_proxy import FaultProxy, Hold, Rule, duplicate, unreachable
from tests.fakes import faults
from tests.fakes.ray_server import FakeRay

REQUEST = {"submission_id": "j", "entrypoint": "true"}
SUBMIT = "^/api/jobs/$"


@pytest.fixture
async def fake() -> AsyncIterator[FakeRay]:
    async with FakeRay(token="t") as server:
        yield server


@pytest.fixture
async def proxy(fake: FakeRay) -> AsyncIterator[FaultProxy]:
    with FaultProxy(fake.address) as running:
        yield running


def client(proxy: FaultProxy, lane: str, attempts: int = 1) -> RayClient:
    return RayClient(RayEndpoint(proxy.address(lane), token="t"), attempts=attempts)


async def test_what_no_rule_befalls_passes_and_is_counted(fake: FakeRay, proxy: FaultProxy) -> None:
    async with client(proxy, "a") as ray:
        assert await ray.submit(REQUEST) is True
        await ray.put_package("gcs://p.zip", b"content")
        assert (await ray.job("j")).submission_id == "j"
        with pytest.raises(JobNotFoundError):
            await ray.job("k")
    assert fake.packages == {"gcs://p.zip": b"content"}
    assert proxy.count("a", "POST", SUBMIT) == 1
    assert proxy.count("a", "GET") == 2
    assert proxy.count("b") == 0


async def test_a_rule_befalls_its_lane_and_text_so_many_times_until_it_is_lifted(
    fake: FakeRay, proxy: FaultProxy
) -> None:
    fake.add_job("j")
    fake.add_job("k")
    once = proxy.add(Rule(unreachable, path="/j$", lane="a", times=1))
    always = proxy.add(Rule(faults.status(502), method="GET", text="k"))
    async with client(proxy, "b") as other, client(proxy, "a") as ray:
        await other.job("j")
        # A GET whose connection breaks is repeated by aiohttp itself, so the second one arrives.
        await ray.job("j")
        assert (once.hits, once.wait_struck(0)) == (1, True)
        for each in (other, ray):
            with pytest.raises(RayUnavailableError, match="502"):
                await each.job("k")
        always.lift()
        await ray.job("k")
    assert always.hits == 2


async def test_a_duplicated_submit_arrives_twice(fake: FakeRay, proxy: FaultProxy) -> None:
    proxy.add(Rule(duplicate, "POST", SUBMIT))
    async with client(proxy, "a") as ray:
        # The second is refused, which is the answer; the job is found.
        assert await ray.submit(REQUEST) is False
    assert len(fake.calls("POST", "/api/jobs/")) == 2


@pytest.mark.parametrize("forwarded", [True, False])
@pytest.mark.parametrize("dropped", [True, False])
async def test_a_request_is_held_before_or_after_it_arrives(
    fake: FakeRay, proxy: FaultProxy, forwarded: bool, dropped: bool
) -> None:
    hold = Hold(forwarded=forwarded)
    proxy.add(Rule(hold, "POST", SUBMIT, text='"j"', times=1))
    async with client(proxy, "a") as ray:
        submit = asyncio.create_task(ray.submit(REQUEST))
        assert await asyncio.to_thread(hold.wait_kept, 10)
        assert list(fake.jobs) == (["j"] if forwarded else [])
        assert not submit.done()
        hold.drop() if dropped else hold.release()
        if dropped and not forwarded:
            with pytest.raises(RayUnavailableError):
                await submit
            assert not fake.jobs
        else:
            # Where the answer was lost, the job is looked up.
            assert await submit is not dropped
            assert list(fake.jobs) == ["j"]


async def test_the_end_of_ray_is_a_broken_connection(proxy: FaultProxy, fake: FakeRay) -> None:
    await fake._runner.cleanup()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{proxy.address('a')}/api/jobs/")
