"""One job from submit to end, on a dashboard that answers."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.exceptions import (
    JobFailedError,
    JobKilledError,
    JobLostError,
    JobResultError,
    JobSetupError,
    JobStartTimeoutError,
    JobStoppedError,
    JobTimeoutError,
    PackageLostError,
    RayAuthError,
    RayRequestError,
    ResultLostError,
)
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.packages import runner_package
from airflow_provider_raytenant.runner.end_record import encode
from tests.fakes import faults
from tests.fakes.ray_server import FakeJob, FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.watching import REQUEST, Watched, following

OURS = "gcs://_ray_pkg_of_the_task.zip"


async def submitted(fake: FakeRay, until: Until) -> FakeJob:
    await until(lambda: "j" in fake.jobs, "the submit")
    return fake.jobs["j"]


async def test_success_with_output_and_result(fake: FakeRay, client: RayClient, until: Until) -> None:
    watched = Watched(client)
    job = await submitted(fake, until)
    await until(lambda: watched.noted("is PENDING"), "the note of PENDING")
    job.run()
    await until(lambda: watched.noted("is RUNNING on node head00000000."), "the note of RUNNING")
    job.write("hello\n")
    await until(lambda: watched.lines, "the output, while the job runs")
    job.write("world")
    job.write_record(result={"rows": 3})
    job.end()
    outcome = await watched.outcome()

    assert outcome.error is None
    assert outcome.result == {"rows": 3}
    assert outcome.submission_id == "j"
    assert watched.lines == ["hello", "world"]
    assert [note.split()[2].strip(".") for note in watched.notes] == [
        "submitted",
        "is",
        "is",
        "is",
    ]
    assert watched.notes[-1] == "Job j is SUCCEEDED."
    assert fake.calls("POST") == ["POST /api/jobs/"]
    assert job.request == REQUEST


async def test_success_without_a_record_may_have_lost_its_result(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").end()
    outcome = await Watched(client).outcome()

    assert isinstance(outcome.error, ResultLostError)


ENDS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, type[Exception], str]] = {
    "exit code": (
        {"status": "FAILED", "exit_code": 3},
        {"exit_code": 3},
        JobFailedError,
        "failed with exit code 3",
    ),
    "killed": ({"status": "FAILED", "exit_code": -9}, None, JobKilledError, "killed by SIGKILL"),
    "own deadline": (
        {"status": "FAILED", "exit_code": 124},
        {"outcome": "job_timeout", "seconds": 60.2},
        JobTimeoutError,
        "after 60 s",
    ),
    "wrong result": (
        {"status": "FAILED", "exit_code": 1},
        {"result_error": {"message": "too large"}},
        JobResultError,
        "too large",
    ),
    "stopped": ({"status": "STOPPED", "exit_code": None}, None, JobStoppedError, "was stopped"),
    "runtime env": (
        {
            "status": "FAILED",
            "exit_code": None,
            "error_type": "RUNTIME_ENV_SETUP_FAILURE",
            "message": "no pip",
        },
        None,
        JobSetupError,
        "no pip",
    ),
    "no room": (
        {"status": "FAILED", "exit_code": None, "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"},
        None,
        JobStartTimeoutError,
        "no room",
    ),
    "node died": (
        {"status": "FAILED", "exit_code": None, "error_type": "JOB_SUPERVISOR_ACTOR_DIED"},
        None,
        JobLostError,
        "supervisor died",
    ),
}


@pytest.mark.parametrize("end", ENDS)
async def test_other_ends(fake: FakeRay, client: RayClient, until: Until, end: str) -> None:
    levers, record, kind, text = ENDS[end]
    watched = Watched(client)
    job = await submitted(fake, until)
    job.run()
    job.write("last words\n")
    if record:
        job.write_record(**record)
    job.end(**levers)
    outcome = await watched.outcome()

    assert type(outcome.error) is kind
    assert text in str(outcome.error)
    assert watched.lines == ["last words"]


async def test_rays_message_is_told_without_the_record(fake: FakeRay, client: RayClient) -> None:
    message = "Job failed due to an application error, last available logs:\nboom\n" + encode({"v": 1})
    fake.add_job("j").end("FAILED", exit_code=1, message=message)
    outcome = await Watched(client).outcome()

    assert outcome.error is not None
    assert "raytenant-end" not in str(outcome.error.details)
    assert "boom" in outcome.error.details["ray_message"]


async def test_a_job_that_ray_forgot(fake: FakeRay, client: RayClient, until: Until) -> None:
    watched = Watched(client)
    (await submitted(fake, until)).run()
    await until(lambda: watched.noted("is RUNNING") and following(), "the job under way")
    del fake.jobs["j"]
    outcome = await watched.outcome()

    assert isinstance(outcome.error, JobLostError)
    assert "no longer knows job j" in str(outcome.error)
    assert not following()


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "SUCCEEDED"])
async def test_a_job_that_is_there_is_followed(
    fake: FakeRay, client: RayClient, until: Until, status: str
) -> None:
    job = fake.add_job("j")
    job.status = status
    job.write("written before\n")
    if status == "SUCCEEDED":
        job.write_record(result="of the first")
    watched = Watched(client)
    await until(lambda: watched.noted("Job j found, following it."), "the note")
    if status != "SUCCEEDED":
        job.run()
        job.write_record(result="of the first")
        job.end()
    outcome = await watched.outcome()

    assert outcome.result == "of the first"
    assert watched.lines == ["written before"]
    assert list(fake.jobs) == ["j"]


async def test_a_refused_submit_ends_the_watch(fake: FakeRay, client: RayClient) -> None:
    with pytest.raises(RayRequestError, match="400"):
        await Watched(client, request={**REQUEST, "priority": 1}).outcome()


async def test_a_token_that_is_being_changed_is_an_outage(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    """The job may be there already: another trigger's, that was stopped a moment ago."""
    job = fake.add_job("j")
    job.run()
    token, fake.token = fake.token, "changed"
    watched = Watched(client)
    await until(lambda: watched.noted("refuses the connection's token (403). Trying for"), "the note")
    fake.token = token
    await until(lambda: watched.noted("found, following it"), "the job")
    job.write_record(result=7)
    job.end()
    assert (await watched.outcome()).result == 7

    fake.token = "changed for good"
    outcome = await Watched(client, outage_budget=0.05).outcome()
    assert isinstance(outcome.error, RayAuthError)


async def test_a_job_that_did_well_is_not_failed_by_its_log(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    watched = Watched(client, outage_budget=600)
    job = await submitted(fake, until)
    job.write("hello\n")
    job.write_record(result=7)
    fake.fail("GET", "/api/v0/logs/file", *[faults.drop] * 30)
    fake.fail("GET", "/api/jobs/j/logs", *[faults.drop] * 80)
    job.run()
    job.end()

    assert (await watched.outcome()).result == 7
    assert watched.noted("The job's result cannot be read just now")


@pytest.mark.parametrize("needs_result", [True, False])
async def test_a_log_that_went_with_its_node_is_not_waited_for(
    fake: FakeRay, client: RayClient, until: Until, needs_result: bool
) -> None:
    watched = Watched(client, needs_result=needs_result)
    job = await submitted(fake, until)
    job.write_record(result=7)
    fake.nodes = []
    fake.fail("GET", "/api/v0/logs/file", *[faults.status(500)] * 1000)
    fake.fail("GET", "/api/jobs/j/logs", *[faults.status(500)] * 1000)
    job.run()
    job.end()
    outcome = await watched.outcome()

    assert isinstance(outcome.error, ResultLostError) is needs_result


async def test_packages_are_pinned_before_the_submit(fake: FakeRay, client: RayClient) -> None:
    runner = runner_package("acme")
    fake.packages = {OURS: b"1", runner.uri: runner.content}
    env = {"working_dir": OURS, "py_modules": ["s3://elsewhere/lib.zip", runner.uri]}
    fake.add_job("j").end()
    await Watched(client, request={**REQUEST, "runtime_env": env}).outcome()

    path = "/api/packages/gcs/"
    assert fake.calls()[:3] == [
        f"GET {path}{OURS.removeprefix('gcs://')}",
        f"GET {path}{runner.uri.removeprefix('gcs://')}",
        "POST /api/jobs/",
    ]


async def test_a_missing_runner_is_uploaded_again(fake: FakeRay, client: RayClient, until: Until) -> None:
    runner = runner_package("acme")
    watched = Watched(client, request={**REQUEST, "runtime_env": {"py_modules": [runner.uri]}})
    job = await submitted(fake, until)
    job.end()
    await watched.outcome()

    assert fake.packages == {runner.uri: runner.content}


async def test_another_tenants_runner_is_no_runner(fake: FakeRay, client: RayClient) -> None:
    env = {"py_modules": [runner_package("globex").uri]}
    with pytest.raises(PackageLostError):
        await Watched(client, request={**REQUEST, "runtime_env": env}).outcome()
    assert fake.packages == {}


@pytest.mark.parametrize(
    "env", [{"working_dir": OURS}, {"py_modules": [OURS]}], ids=["working_dir", "py_modules"]
)
async def test_a_lost_package(fake: FakeRay, client: RayClient, env: dict[str, Any]) -> None:
    with pytest.raises(PackageLostError, match=f"package {OURS} of job j is no longer") as caught:
        await Watched(client, request={**REQUEST, "runtime_env": env}).outcome()

    assert not isinstance(caught.value, RayRequestError)
    assert fake.calls("POST") == []


async def test_a_lost_package_of_a_job_that_is_there(fake: FakeRay, client: RayClient, until: Until) -> None:
    job = fake.add_job("j")
    watched = Watched(client, request={**REQUEST, "runtime_env": {"working_dir": OURS}})
    await until(lambda: watched.noted("found, following it"), "the note")
    job.write_record()
    job.end()

    assert (await watched.outcome()).error is None
    assert fake.calls("POST") == []


async def test_an_exit_code_may_skip_the_task(fake: FakeRay, client: RayClient, until: Until) -> None:
    watched = Watched(client, skip_on=(99,))
    job = await submitted(fake, until)
    job.write_record(outcome="exited", exit_code=99)
    job.end("FAILED", exit_code=99)

    outcome = await watched.outcome()
    assert (outcome.skipped, outcome.error) == (True, None)
