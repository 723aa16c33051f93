"""The doctor's own job on a fake dashboard: what it asks for, what it leaves."""

from __future__ import annotations

import ast
import asyncio
import json
import shlex

import pytest

from airflow_provider_raytenant.checks import probe
from airflow_provider_raytenant.checks.node_look import MARK
from airflow_provider_raytenant.checks.probe import Report, parse_report, probe_request, run_probe
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.sweep import own_jobs
from airflow_provider_raytenant.domain.tenants import Tenant
from airflow_provider_raytenant.exceptions import RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes.doctor import sound_node
from tests.fakes.faults import status
from tests.fakes.ray_server import FakeJob, FakeRay, actor

ENV = {"AWS_ENDPOINT_URL": "http://s3:8333", "AWS_SECRET_ACCESS_KEY": "a-secret", "REGION": "eu"}
TENANTS = {
    name: Tenant.model_validate({"name": name, "cluster": "one", **more})
    for name, more in {
        "acme": {"storage": "s3://l/acme", "credentials": "node", "runtime_env": {"env_vars": ENV}},
        "bare": {},
    }.items()
}
DONE = JobInfo("x", JobStatus.SUCCEEDED)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_INTERVAL", "_SETTLED"):
        monkeypatch.setattr(probe, name, 0.01)


def test_the_request_is_a_small_job_of_nobodys_and_shows_no_secret() -> None:
    request = probe_request("raytenant-doctor-1", "prod", TENANTS)
    exec_, python, option, script, argument = shlex.split(request["entrypoint"])
    assert (exec_, python, option) == ("exec", "python", "-c")
    assert ast.parse(script).body
    assert json.loads(argument)["s3"] == {"acme": ["s3://l/acme", {"AWS_ENDPOINT_URL": "http://s3:8333"}]}
    assert "a-secret" not in json.dumps(request)
    assert 0 < request["entrypoint_num_cpus"] < 0.1
    info = JobInfo("raytenant-doctor-1", JobStatus.RUNNING, metadata=request["metadata"])
    assert own_jobs([info], "prod") == []


@pytest.mark.parametrize(
    "line",
    ["", MARK + "[1]", MARK + "{", MARK + '{"python": "3.11"}', MARK + '{"python": 1, "alive": null}'],
)
def test_a_report_that_is_not_sound_is_trouble(line: str) -> None:
    found = parse_report(f"some output\n{line}\n", DONE)
    assert found.trouble
    assert found.nodes == {}


def test_the_report_is_found_in_the_output() -> None:
    data = {"python": "3.11.9", "alive": 1, "asked": 1, "nodes": {"n": sound_node(missing=["pip"])}}
    found = parse_report(f"before\n{MARK}{json.dumps(data)}\nafter", DONE)
    assert (found.trouble, found.nodes["n"].missing) == ("", ("pip",))


async def run(fake: FakeRay, patience: float = 5.0) -> Report:
    async with RayClient(RayEndpoint(fake.address), attempts=1) as client:
        return await run_probe(client, "prod", TENANTS, patience)


async def test_a_job_that_ends_leaves_no_record() -> None:
    async with FakeRay() as fake:

        def tell(job: FakeJob) -> None:
            job.run()
            job.write("sh: python: not found\n")
            job.end("FAILED", exit_code=127, message="Job entrypoint command failed with exit code 127")

        fake.on_submit = tell
        found = await run(fake)
        assert "FAILED without a report" in found.trouble
        assert "exit code 127" in found.trouble
        assert fake.jobs == {}


async def test_a_job_that_runs_too_long_is_stopped_and_removed() -> None:
    async with FakeRay() as fake:
        fake.on_submit = FakeJob.run
        found = await run(fake, patience=0.05)
        assert (found.trouble, found.waited) == ("the doctor's job still runs after 0.05 s", False)
        assert fake.jobs == {}


async def test_a_job_that_waits_is_told_to_stop_and_said_so() -> None:
    async with FakeRay() as fake:
        found = await run(fake, patience=0.05)
        assert (found.trouble, found.waited) == ("the doctor's job still waits in Ray after 0.05 s", True)
        assert [job.stop_asked for job in fake.jobs.values()] == [True]


async def test_a_refused_submit_is_the_error_of_its_own() -> None:
    async with FakeRay() as fake:
        fake.fail("POST", "/api/jobs/", status(500))
        with pytest.raises(RayUnavailableError):
            await run(fake)


async def test_the_record_stays_until_the_supervisor_is_gone() -> None:
    async with FakeRay() as fake:

        def end(job: FakeJob) -> None:
            job.run()
            job.end()
            name = f"_ray_internal_job_actor_{job.request['submission_id']}"
            fake.actors = [actor("JobSupervisor", name)]

        fake.on_submit = end
        probing = asyncio.create_task(run(fake))
        try:
            async with asyncio.timeout(10):
                while len(fake.calls("GET", "/api/v0/actors")) < 3:
                    await asyncio.sleep(0.005)
            assert fake.calls("DELETE") == []
        finally:
            fake.actors = []
            await probing
        assert fake.jobs == {}
