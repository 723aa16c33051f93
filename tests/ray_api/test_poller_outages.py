"""A dashboard that is away costs few requests, blocks nobody else, and is woken when it is back."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.exceptions import (
    RayAuthError,
    RayRequestError,
    RayTenantError,
    RayUnavailableError,
)
from airflow_provider_raytenant.ray_api import waker
from airflow_provider_raytenant.ray_api.client import ATTEMPTS, RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.poller import SINGLES_AT_ONCE, JobPoller
from tests.fakes import faults
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.looking import add_jobs, asked, look_at, names_of

STOPS = "/api/jobs/[^/]+/stop"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(waker, "LONGEST_PAUSE", 0.0)


@pytest.mark.parametrize("count", [1, 10, 1000])
async def test_an_outage_costs_the_requests_of_one_look(fake: FakeRay, poller: JobPoller, count: int) -> None:
    names = add_jobs(fake, count)
    await look_at(poller, names)
    asked(fake)
    fake.outage(faults.status(502))
    for expected in (SINGLES_AT_ONCE if count == 10 else 1, 1, 1):
        answers = await look_at(poller, names)
        assert {type(answer) for answer in answers} == {RayUnavailableError}
        assert asked(fake).total() <= expected * ATTEMPTS
    assert len({id(answer) for answer in answers}) == count
    fake.outage(None)

    assert names_of(await look_at(poller, names)) == names
    assert asked(fake).total() <= 1 + count if count < 12 else 2


async def test_an_outage_amid_single_reads(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 100, ended=2000)
    await look_at(poller, names)
    asked(fake)
    fake.fail("GET", "/api/jobs/.+", *[faults.passes] * 20, *[faults.status(503)] * 1000)
    answers = await look_at(poller, names)

    assert sum(isinstance(answer, JobInfo) for answer in answers) == 20
    assert asked(fake)["one"] <= 20 + 2 * SINGLES_AT_ONCE * ATTEMPTS


async def test_trouble_with_one_job_is_not_an_outage(fake: FakeRay, poller: JobPoller) -> None:
    """Ray answers 500 for one job for ever: the others do not suffer."""
    names = add_jobs(fake, 40, ended=500)
    await look_at(poller, names)
    fake.fail("GET", "/api/jobs/j7", *[faults.status(500)] * 1000)
    for _ in range(3):
        answers = await look_at(poller, names)
        assert isinstance(answers[7], RayUnavailableError)
        assert sum(isinstance(answer, JobInfo) for answer in answers) == 39


@pytest.mark.parametrize(
    ("status", "kind"), [(401, RayAuthError), (403, RayAuthError), (404, RayRequestError)]
)
async def test_a_refusal_is_told_to_all(
    fake: FakeRay, poller: JobPoller, status: int, kind: type[RayTenantError]
) -> None:
    names = add_jobs(fake, 30)
    fake.outage(faults.status(status))
    answers = await look_at(poller, names)

    assert {type(answer) for answer in answers} == {kind}
    assert asked(fake) == {"list": 1}


async def test_a_listing_that_fails_where_single_reads_go_well(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 30)
    fake.fail("GET", "/api/jobs/", *[faults.status(500)] * 1000)
    answers = await look_at(poller, names)
    assert {type(answer) for answer in answers} == {RayUnavailableError}
    assert asked(fake) == {"list": ATTEMPTS}
    for _ in range(3):
        assert names_of(await look_at(poller, names)) == names
        assert asked(fake)["one"] == 30


async def test_after_an_outage_of_everything_listings_are_made_again(
    fake: FakeRay, poller: JobPoller
) -> None:
    names = add_jobs(fake, 30)
    fake.outage(faults.status(502))
    await look_at(poller, names)
    await look_at(poller, names)
    fake.outage(None)
    asked(fake)

    assert names_of(await look_at(poller, names)) == names
    assert asked(fake) == {"one": 1, "list": 1}


async def test_a_hung_dashboard_blocks_nobody_else(endpoint: RayEndpoint, fake: FakeRay) -> None:
    fake.outage(faults.hang)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(FakeRay())
        well = await stack.enter_async_context(RayClient(RayEndpoint(other.address)))
        client = await stack.enter_async_context(RayClient(endpoint, timeout=1.0, attempts=1))
        hung, healthy = JobPoller(client), JobPoller(well)
        names = add_jobs(other, 50)
        waiting = [asyncio.create_task(hung.look(f"j{number}")) for number in range(1000)]
        rounds = ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.create_task(tick())
        while not all(look.done() for look in waiting):
            assert names_of(await look_at(healthy, names)) == names
            rounds += 1
        ticker.cancel()
        with pytest.raises(RayUnavailableError, match="did not answer within 1 s"):
            await waiting[-1]
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        await hung.close()
        await healthy.close()

    assert {type(error) for error in errors} == {RayUnavailableError}
    assert len(fake.seen) == 1
    # Of about a thousand, on a machine that does nothing else.
    assert ticks > 20
    assert rounds > 5


async def test_a_large_listing_is_read_in_a_thread(
    fake: FakeRay, poller: JobPoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads = 0
    to_thread = asyncio.to_thread

    async def counted(*arguments: Any) -> Any:
        nonlocal in_threads
        in_threads += 1
        return await to_thread(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    names = add_jobs(fake, 30)
    assert names_of(await look_at(poller, names)) == names
    assert in_threads == 0
    add_jobs(fake, 30, ended=1000)
    assert names_of(await look_at(poller, [*names, *names])) == [*names, *names]
    assert in_threads == 1


async def outage(fake: FakeRay, poller: JobPoller) -> None:
    """One round that fails, and one that goes well."""
    fake.outage(faults.status(502))
    with pytest.raises(RayUnavailableError):
        await poller.look("j0")
    fake.outage(None)
    asked(fake)
    await poller.look("j0")


async def test_after_an_outage_the_job_manager_is_woken_once(
    fake: FakeRay, poller: JobPoller, until: Until
) -> None:
    add_jobs(fake, 3, ended=2)
    fake.add_job("pending")
    fake.add_job("ours", metadata={"raytenant.tenant": "acme"}).end()
    await outage(fake, poller)
    await until(lambda: fake.calls("POST"), "the stop")
    for _ in range(3):
        await look_at(poller, ["j0", "j1", "j2"])

    assert fake.calls("POST") == ["POST /api/jobs/ours/stop"]
    assert [name for name, job in fake.jobs.items() if job.stop_asked] == ["ours"]
    await outage(fake, poller)
    await until(lambda: fake.calls("POST"), "the stop after the second outage")


async def test_the_listing_of_the_round_serves_the_wake(
    fake: FakeRay, poller: JobPoller, until: Until
) -> None:
    names = add_jobs(fake, 30, ended=1)
    fake.outage(faults.status(502))
    await look_at(poller, names)
    await look_at(poller, names)
    fake.outage(None)
    asked(fake)
    await look_at(poller, names)
    await until(lambda: fake.calls("POST"), "the stop")

    assert asked(fake) == {"one": 1, "list": 1, "POST /api/jobs/old-0/stop": 1}


async def test_a_live_job_is_never_stopped(fake: FakeRay, poller: JobPoller, until: Until) -> None:
    """Nothing has ended yet, so the wake waits until something has."""
    add_jobs(fake, 2)
    fake.add_job("pending")
    await outage(fake, poller)
    await until(lambda: fake.calls("GET", "/api/jobs/"), "the listing of the wake")
    await poller.look("j0")
    assert not fake.calls("POST")
    fake.jobs["j1"].end()

    async def woken() -> None:
        while not fake.calls("POST"):
            await poller.look("j0")

    await asyncio.wait_for(woken(), 20)
    assert fake.calls("POST") == ["POST /api/jobs/j1/stop"]


async def test_trouble_with_the_wake_harms_no_look_and_is_tried_again(
    fake: FakeRay, poller: JobPoller
) -> None:
    """The dashboard answers before the agent does."""
    add_jobs(fake, 1, ended=1)
    fake.fail("GET", "/api/jobs/", faults.status(404), faults.answer("{}"))
    fake.fail("POST", STOPS, *[faults.status(500)] * ATTEMPTS)
    await outage(fake, poller)

    async def woken() -> None:
        while len(fake.calls("POST")) <= ATTEMPTS:
            await poller.look("j0")

    await asyncio.wait_for(woken(), 20)
    assert set(fake.calls("POST")) == {"POST /api/jobs/old-0/stop"}
    await look_at(poller, ["j0"] * 3)
    assert len(fake.calls("POST")) == ATTEMPTS + 1


async def test_no_outage_no_wake(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 20, ended=3)
    fake.fail("GET", "/api/jobs/", faults.drop, faults.status(502))
    for _ in range(3):
        assert names_of(await look_at(poller, [*names, "nobody"]))[:20] == names

    assert not fake.calls("POST")


async def test_supervisors_are_asked_for_once(fake: FakeRay, poller: JobPoller) -> None:
    add_jobs(fake, 3)
    answers = await asyncio.gather(*[poller.supervisors() for _ in range(1000)])

    assert {frozenset(answer) for answer in answers} == {frozenset({"j0", "j1", "j2"})}
    assert asked(fake) == {"GET /api/v0/actors": 1}
    fake.jobs["j0"].end()
    assert await poller.supervisors() == {"j0", "j1", "j2"}
    assert await poller.supervisors(0.0) == {"j1", "j2"}
    assert await poller.supervisors() == {"j1", "j2"}
    assert asked(fake) == {"GET /api/v0/actors": 1}


async def test_a_question_under_way_may_be_too_old(fake: FakeRay, poller: JobPoller, until: Until) -> None:
    add_jobs(fake, 1)
    fake.fail("GET", "/api/v0/actors", faults.hang)
    old = asyncio.create_task(poller.supervisors())
    await until(lambda: fake.seen, "the request")

    assert await poller.supervisors(0.0) == {"j0"}
    assert not old.done()
    assert await poller.supervisors(5.0) == {"j0"}
    assert len(fake.seen) == 2
    old.cancel()


async def test_supervisors_in_an_outage(fake: FakeRay, poller: JobPoller, until: Until) -> None:
    fake.outage(faults.status(502))
    asking = [asyncio.create_task(poller.supervisors()) for _ in range(100)]
    await until(lambda: fake.seen, "the request")
    for gone in asking[:50]:
        gone.cancel()
    answers = await asyncio.gather(*asking[50:], return_exceptions=True)

    assert {type(answer) for answer in answers} == {RayUnavailableError}
    assert len(fake.seen) <= ATTEMPTS
    fake.outage(None)
    assert await poller.supervisors() == frozenset()
