"""One cluster of two, made worse in one way at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_raytenant.checks.cluster import look_at_cluster, refuses_strangers
from airflow_provider_raytenant.checks.finding import Finding, Level
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.tenant_file import load
from tests.fakes.doctor import GIB, Patient, sound_node
from tests.fakes.faults import answer, status
from tests.fakes.ray_server import FakeRay, node

START_TIMEOUT = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"


async def found(patient: Patient, **options: Any) -> dict[str, Finding]:
    """What is not ok, by check."""
    file = load(str(patient.world.file))
    tenants = {"acme": file.tenants["acme"]}
    look = await look_at_cluster("one", file.clusters["one"], file.deployment, tenants, **options)
    assert {finding.cluster for finding in look.findings} == {"one"}
    return {finding.check: finding for finding in look.findings if finding.level is not Level.OK}


async def test_a_sound_cluster_has_nothing_but_ok(patient: Patient) -> None:
    assert await found(patient) == {}
    assert patient.world.one.jobs == {}


async def test_without_jobs_nothing_is_submitted(patient: Patient) -> None:
    assert await found(patient, job_patience=None) == {}
    assert patient.world.one.calls("POST") == []


def open_to_all(patient: Patient) -> None:
    patient.world.one.token = None


def head_works(patient: Patient) -> None:
    patient.world.one.nodes[0]["resources_total"]["CPU"] = 2.0


def small_nodes(patient: Patient) -> None:
    patient.world.one.nodes = [node("small", cpus=1, memory=GIB // 4)]


def no_nodes(patient: Patient) -> None:
    patient.world.one.nodes = [node("gone", cpus=4, memory=GIB, state="DEAD")]


def old_ray(patient: Patient) -> None:
    patient.world.one.version["ray_version"] = "2.40.0"


def other_type(patient: Patient) -> None:
    patient.types["ray_one"] = "http"


def no_connection(patient: Patient) -> None:
    del patient.world.database.endpoints["ray_one"]


def wrong_token(patient: Patient) -> None:
    endpoints = patient.world.database.endpoints
    endpoints["ray_one"] = replace(endpoints["ray_one"], token="another")


def no_dashboard(patient: Patient) -> None:
    patient.world.database.endpoints["ray_one"] = RayEndpoint("http://127.0.0.1:9")


def no_ray(patient: Patient) -> None:
    patient.world.one.fail("GET", "/api/version", answer("{}"))


def no_jobs_api(patient: Patient) -> None:
    patient.world.one.fail("GET", "/api/jobs/", *[status(500)] * 9)


def no_certificate(patient: Patient) -> None:
    endpoints = patient.world.database.endpoints
    endpoints["ray_one"] = replace(endpoints["ray_one"], ca_file="/nowhere/ca.pem")


def impatient(patient: Patient) -> None:
    message = "Job supervisor actor failed to start within 30.0 seconds. This timeout ..."
    patient.world.one.add_job("late").end("FAILED", error_type=START_TIMEOUT, message=message)


def impatient_by_environment(patient: Patient) -> None:
    patient.report["nodes"]["a"] = sound_node(start_timeout="60")


def no_pip(patient: Patient) -> None:
    patient.report["nodes"]["a"] = sound_node(missing=["pip"])


def job_refused(patient: Patient) -> None:
    patient.world.one.fail("POST", "/api/jobs/", *[status(500)] * 9)


@pytest.mark.parametrize(
    ("worsen", "expected"),
    [
        (open_to_all, {"authentication": Level.WARNING}),
        (head_works, {"head": Level.WARNING}),
        (small_nodes, {"group cpu": Level.FAILURE}),
        (no_nodes, {"nodes": Level.FAILURE, "group cpu": Level.FAILURE}),
        (old_ray, {"Ray version": Level.FAILURE}),
        (other_type, {"connection": Level.WARNING}),
        (no_connection, {"connection": Level.FAILURE}),
        (wrong_token, {"dashboard": Level.FAILURE}),
        (no_dashboard, {"dashboard": Level.FAILURE}),
        (no_ray, {"dashboard": Level.FAILURE}),
        (no_jobs_api, {"jobs API": Level.FAILURE}),
        (no_certificate, {"connection": Level.FAILURE}),
        (impatient, {"start time-out": Level.FAILURE}),
        (impatient_by_environment, {"start time-out": Level.FAILURE}),
        (no_pip, {"packages": Level.WARNING}),
        (job_refused, {"jobs": Level.FAILURE}),
    ],
)
async def test_each_thing_that_is_wrong_is_told_with_advice(
    patient: Patient, worsen: Callable[[Patient], None], expected: dict[str, Level]
) -> None:
    worsen(patient)
    wrong = await found(patient)
    assert {check: finding.level for check, finding in wrong.items()} == expected
    assert all(finding.found and finding.advice.endswith(".") for finding in wrong.values())


async def test_s3_is_told_for_each_tenant_that_has_some(patient: Patient) -> None:
    text = patient.world.file.read_text()
    patient.world.file.write_text(
        text.replace("acme: {}", "acme: {storage: s3://lake/acme, credentials: node}")
    )
    patient.report["nodes"]["a"] = sound_node(s3={"acme": "ClientError: AccessDenied"})
    wrong = await found(patient)
    assert (wrong["S3"].level, wrong["S3"].tenant) == (Level.FAILURE, "acme")


async def test_a_stranger_brings_none_of_the_connections_secrets() -> None:
    async with FakeRay() as fake:
        endpoint = RayEndpoint(fake.address, token="a-token", headers={"X-Proxy-Key": "a-key"})
        assert not await refuses_strangers(endpoint)
        assert "a-token" not in str(fake.seen[0].headers)
        assert "a-key" not in str(fake.seen[0].headers)
        fake.outage(status(302, Location="https://login.example.org/?next=x"))
        assert await refuses_strangers(endpoint)
        fake.outage(status(403))
        assert await refuses_strangers(endpoint)
