"""A dashboard that is away for a while says nothing about the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_raytenant.domain.lifecycle import OUTAGE_BUDGET, Limits
from airflow_provider_raytenant.exceptions import RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes import faults
from tests.fakes.faults import Fault
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Clock, Until
from tests.ray_api.watching import Watched, following

OUTAGES = {
    "dropped": faults.drop,
    "502": faults.status(502),
    "truncated": faults.truncate,
    "another service": faults.answer("<html>log in</html>"),
}


@pytest.mark.parametrize("fault", OUTAGES.values(), ids=OUTAGES)
async def test_an_outage_while_the_job_runs(
    fake: FakeRay, client: RayClient, until: Until, fault: Fault
) -> None:
    watched = Watched(client, outage_budget=20)
    await until(lambda: "j" in fake.jobs, "the submit")
    job = fake.jobs["j"]
    job.run()
    job.write("before\n")
    await until(lambda: watched.lines and watched.noted("is RUNNING"), "the job under way")
    fake.outage(fault)
    await until(lambda: watched.noted("Trying for 20 s; the job is not affected."), "the note of the outage")
    job.write("meanwhile\n")
    job.write_record(result=7)
    job.end()
    seen = len(fake.seen)
    await until(lambda: len(fake.seen) > seen + 10, "requests in vain")
    assert not watched.task.done()
    fake.outage(None)
    outcome = await watched.outcome()

    assert (outcome.error, outcome.result) == (None, 7)
    assert watched.lines == ["before", "meanwhile"]
    assert watched.notes.count("Ray answers again.") == 1
    assert len([note for note in watched.notes if "Trying for" in note]) == 1
    assert len(fake.calls("POST", "/api/jobs/")) == 1


async def test_an_outage_longer_than_the_budget(
    fake: FakeRay, client: RayClient, clock: Clock, until: Until
) -> None:
    watched = Watched(client, outage_budget=60)
    await until(lambda: "j" in fake.jobs, "the submit")
    fake.jobs["j"].run()
    await until(lambda: watched.noted("is RUNNING"), "the job under way")
    fake.outage(faults.status(502))
    await until(lambda: watched.noted("Trying for 60 s"), "the note of the outage")
    clock.now += 59
    seen = len(fake.seen)
    await until(lambda: len(fake.seen) > seen + 10, "requests in vain")
    assert not watched.task.done()
    clock.now += 2

    with pytest.raises(RayUnavailableError, match="answered 502"):
        await watched.outcome()

    assert fake.jobs["j"].status == "RUNNING"
    assert not fake.jobs["j"].stop_asked
    assert not following()


async def test_each_outage_has_the_whole_budget(
    fake: FakeRay, client: RayClient, clock: Clock, until: Until
) -> None:
    watched = Watched(client, outage_budget=60)
    await until(lambda: "j" in fake.jobs, "the submit")
    job = fake.jobs["j"]
    job.run()
    for count in range(1, 4):
        fake.outage(faults.status(502))
        await until(lambda n=count: sum("Trying" in note for note in watched.notes) == n, "the outage")
        clock.now += 50
        fake.outage(None)
        await until(lambda n=count: watched.notes.count("Ray answers again.") == n, "the end of the outage")
    job.write_record()
    job.end()

    assert (await watched.outcome()).error is None


async def test_an_outage_at_the_submit(fake: FakeRay, client: RayClient, until: Until) -> None:
    fake.outage(faults.drop)
    watched = Watched(client)
    await until(lambda: watched.noted("Trying for 600 s"), "the note of the outage")
    fake.outage(None)
    await until(lambda: "j" in fake.jobs, "the submit")
    fake.jobs["j"].write_record()
    fake.jobs["j"].end()

    assert (await watched.outcome()).error is None
    assert watched.notes[1:3] == ["Ray answers again.", "Job j submitted."]


async def test_a_submit_that_took_effect_before_the_outage(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    fake.fail("POST", "/api/jobs/", faults.lose_answer)
    fake.fail("GET", "/api/jobs/j", *[faults.drop] * 8)
    watched = Watched(client)
    await until(lambda: watched.noted("found, following it"), "the note")
    fake.jobs["j"].write_record()
    fake.jobs["j"].end()

    assert (await watched.outcome()).error is None
    assert list(fake.jobs) == ["j"]


async def test_nobody_there_at_the_submit(endpoint: RayEndpoint) -> None:
    async with RayClient(replace(endpoint, address="http://127.0.0.1:1"), attempts=1) as client:
        with pytest.raises(RayUnavailableError, match="cannot be reached"):
            await Watched(client, outage_budget=0.05).outcome()


async def test_an_outage_at_the_end_costs_output_only(fake: FakeRay, client: RayClient, until: Until) -> None:
    watched = Watched(client)
    await until(lambda: "j" in fake.jobs, "the submit")
    fake.fail("GET", "/api/.*/logs.*", *[faults.status(500)] * 1000)
    fake.jobs["j"].end("FAILED", exit_code=2)
    outcome = await watched.outcome()

    assert "exit code 2" in str(outcome.error)
    assert watched.noted("could not be read")


def test_the_budget_outlives_a_restart_of_the_head() -> None:
    assert Limits().outage_budget == OUTAGE_BUDGET >= 300
