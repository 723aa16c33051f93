"""Looks of many tasks become few requests, and each gets its own answer."""

from __future__ import annotations

import asyncio
import gc

import pytest

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import JobNotFoundError, RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.poller import SINGLES_AT_ONCE, JobPoller
from tests.fakes import faults
from tests.fakes.faults import Handler
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.looking import add_jobs, asked, look_at, names_of

WIDE = 1000.0
"""Seconds: a window whose end no test waits for."""


async def test_one_look_is_one_read(fake: FakeRay, poller: JobPoller) -> None:
    fake.add_job("j", metadata={"raytenant.tenant": "acme"}).end("FAILED", exit_code=3)
    job = await poller.look("j")

    assert (job.submission_id, job.status, job.exit_code) == ("j", JobStatus.FAILED, 3)
    assert job.metadata == {"raytenant.tenant": "acme"}
    assert asked(fake) == {"one": 1}


@pytest.mark.parametrize("count", [12, 100, 1000])
async def test_many_looks_are_one_listing(fake: FakeRay, poller: JobPoller, count: int) -> None:
    names = add_jobs(fake, count)

    assert names_of(await look_at(poller, names)) == names
    assert asked(fake) == {"list": 1}
    assert names_of(await look_at(poller, names)) == names
    assert asked(fake) == {"list": 1}


async def test_a_few_looks_find_out_that_a_listing_is_cheaper(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 10)
    for _ in range(5):
        assert names_of(await look_at(poller, names)) == names

    assert asked(fake) == {"one": 20, "list": 3}


async def test_with_many_old_records_each_is_read_by_itself(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 20, ended=500)

    assert names_of(await look_at(poller, names)) == names
    assert asked(fake) == {"list": 1}
    for _ in range(3):
        assert names_of(await look_at(poller, names)) == names
        assert asked(fake) == {"one": 20}
    assert names_of(await look_at(poller, [*names, *(f"old-{n}" for n in range(100))])) != names
    assert asked(fake) == {"list": 1}


async def test_not_all_single_reads_at_once(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 40, ended=1000)
    await look_at(poller, names)
    under_way = most = 0

    async def count(request: faults.web.Request, handler: Handler) -> faults.web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.005)
        under_way -= 1
        return await handler(request)

    fake.outage(count)
    assert names_of(await look_at(poller, names)) == names
    assert most == SINGLES_AT_ONCE


async def test_looks_at_one_job_share_a_read(fake: FakeRay, poller: JobPoller) -> None:
    add_jobs(fake, 1)

    assert names_of(await look_at(poller, ["j0"] * 50)) == ["j0"] * 50
    assert asked(fake) == {"one": 1}


async def test_windows_that_overlap_share_a_round(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 60)
    await look_at(poller, names)
    asked(fake)
    calm = asyncio.create_task(look_at(poller, names[:20], latest=WIDE))
    young = asyncio.create_task(look_at(poller, names[20:40], earliest=0.01, latest=0.05))
    later = asyncio.create_task(look_at(poller, names[40:], earliest=WIDE, latest=WIDE))

    assert names_of(await calm + await young) == names[:40]
    assert asked(fake) == {"list": 1}
    assert not later.done()
    later.cancel()


async def test_a_look_never_happens_before_its_window(fake: FakeRay, poller: JobPoller) -> None:
    loop = asyncio.get_running_loop()
    add_jobs(fake, 2)
    begun = loop.time()
    late = asyncio.create_task(poller.look("j1", earliest=0.1, latest=0.2))
    await poller.look("j0")
    await late

    assert [str(seen) for seen in fake.seen] == ["GET /api/jobs/j0", "GET /api/jobs/j1"]
    assert fake.seen[1].at >= begun + 0.1


async def test_a_look_that_comes_during_a_round_sees_what_came_after_it(
    fake: FakeRay, poller: JobPoller, until: Until
) -> None:
    """A listing under way may be older than the look's own submit."""
    fake.add_job("j")
    fake.fail("GET", "/api/jobs/j", faults.delay(0.1))
    first = asyncio.create_task(poller.look("j"))
    await until(lambda: fake.seen, "the first read")
    fake.jobs["j"].run()

    assert (await poller.look("j")).status is JobStatus.RUNNING
    assert (await first).status is JobStatus.PENDING


async def test_an_unknown_job(fake: FakeRay, poller: JobPoller) -> None:
    with pytest.raises(JobNotFoundError):
        await poller.look("nobody")
    assert asked(fake) == {"one": 1}


async def test_what_a_listing_lacks_is_looked_for_by_its_id(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 30)
    answers = await look_at(poller, [*names, "nobody"])

    assert names_of(answers[:-1]) == names
    assert isinstance(answers[-1], JobNotFoundError)
    assert asked(fake) == {"list": 1, "one": 1}


async def test_a_job_that_a_listing_lacks_may_be_there(fake: FakeRay, poller: JobPoller) -> None:
    names = add_jobs(fake, 30)

    async def forgetful(request: faults.web.Request, handler: Handler) -> faults.web.StreamResponse:
        job = fake.jobs.pop("j7")
        answer = await handler(request)
        fake.jobs["j7"] = job
        return answer

    fake.fail("GET", "/api/jobs/", forgetful)

    assert names_of(await look_at(poller, names)) == names
    assert asked(fake) == {"list": 1, "one": 1}


async def test_a_record_that_is_not_sound_is_the_trouble_of_its_own_job(
    fake: FakeRay, poller: JobPoller
) -> None:
    names = add_jobs(fake, 30)
    fake.jobs["j7"].status = "DANCING"
    answers = await look_at(poller, names)

    assert asked(fake) == {"list": 1}
    assert isinstance(answers[7], RayUnavailableError)
    assert "DANCING" in str(answers[7])
    del names[7], answers[7]
    assert names_of(answers) == names


async def test_whoever_is_cancelled_before_the_round_costs_nothing(fake: FakeRay, poller: JobPoller) -> None:
    add_jobs(fake, 2)
    gone = asyncio.create_task(poller.look("j0", latest=0.05))
    stays = asyncio.create_task(poller.look("j1", latest=0.1))
    await asyncio.sleep(0)
    gone.cancel()

    assert (await stays).submission_id == "j1"
    assert gone.cancelled()
    assert fake.calls() == ["GET /api/jobs/j1"]


async def test_nobody_is_left_to_wait(fake: FakeRay, poller: JobPoller) -> None:
    add_jobs(fake, 1)
    gone = asyncio.create_task(poller.look("j0", latest=0.02))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])

    assert (await poller.look("j0", earliest=0.04, latest=0.04)).submission_id == "j0"
    assert asked(fake) == {"one": 1}


@pytest.mark.parametrize("fault", [faults.passes, faults.status(502)], ids=["answered", "refused"])
async def test_whoever_is_cancelled_during_the_round_leaves_it_quietly(
    fake: FakeRay, poller: JobPoller, until: Until, fault: faults.Fault
) -> None:
    names = add_jobs(fake, 30)
    held = asyncio.Event()

    async def hold(request: faults.web.Request, handler: Handler) -> faults.web.StreamResponse:
        await held.wait()
        return await fault(request, handler)

    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    fake.outage(hold)
    looks = [asyncio.create_task(poller.look(name)) for name in names]
    await until(lambda: fake.seen, "the request")
    for look in looks[::2]:
        look.cancel()
    await asyncio.wait(looks[::2])
    held.set()
    answers = await asyncio.gather(*looks[1::2], return_exceptions=True)
    assert all(look.cancelled() for look in looks[::2])
    del looks
    gc.collect()
    await asyncio.sleep(0)

    sound = fault is faults.passes
    assert all(isinstance(answer, JobInfo if sound else RayUnavailableError) for answer in answers)
    assert complaints == []


async def test_the_end_of_the_poller_is_told_to_who_waits(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    poller = JobPoller(client)
    add_jobs(fake, 3)
    fake.outage(faults.hang)
    looks = [
        asyncio.create_task(poller.look("j0")),
        asyncio.create_task(poller.look("j1", earliest=WIDE, latest=WIDE)),
        asyncio.create_task(poller.supervisors()),
    ]
    await until(lambda: len(fake.seen) == 2, "a read and a question for supervisors")
    looks.append(asyncio.create_task(poller.look("j2")))
    await asyncio.sleep(0)
    await poller.close()

    for look in looks:
        with pytest.raises(RayUnavailableError, match="closed"):
            await look
    with pytest.raises(RuntimeError, match="after its end"):
        await poller.look("j0")
    with pytest.raises(RuntimeError, match="after its end"):
        await poller.supervisors()
    await poller.close()
    mine = asyncio.current_task()
    assert [task for task in asyncio.all_tasks() if task is not mine and "aiohttp" not in repr(task)] == []


async def test_no_look_is_forgotten_whatever_goes_wrong(fake: FakeRay, client: RayClient) -> None:
    poller = JobPoller(client)
    add_jobs(fake, 30)
    await client.close()
    for count in (1, 30):
        answers = await look_at(poller, [f"j{number}" for number in range(count)])
        assert {type(answer) for answer in answers} == {RuntimeError}
