from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_raytenant.checks import tenant as tenant_module
from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.checks.tenant import forget_roles, judge_credentials, try_roles
from airflow_provider_raytenant.domain.tenants import Tenant
from airflow_provider_raytenant.exceptions import ConnectionConfigError
from airflow_provider_raytenant.storage import aws
from airflow_provider_raytenant.storage.trial import Trial
from tests.fakes.short_lived_s3 import ShortLivedS3

ROLE = {"aws_conn_id": "aws", "role_arn": "arn:aws:iam::000000000000:role/jobs"}


@pytest.mark.parametrize(
    ("more", "level", "words"),
    [
        ({"storage": "s3://lake/acme", "credentials": "node"}, Level.OK, "the nodes' own"),
        ({}, Level.OK, "no storage"),
        ({"storage": "s3://lake/acme", "credentials": ROLE}, Level.OK, "not tried"),
    ],
)
def test_what_the_file_says(more: dict[str, Any], level: Level, words: str) -> None:
    tenant = Tenant.model_validate({"name": "acme", "cluster": "one", **more})
    found = judge_credentials(tenant)
    assert (found.level, words in found.found) == (level, True)


@pytest.mark.parametrize(
    ("trial", "level", "words"),
    [
        (Trial(probe_url="http://s3/x"), Level.OK, "others are refused"),
        (Trial(trouble="role x cannot be assumed"), Level.FAILURE, "role x cannot be assumed"),
        (
            Trial(reached=("listing the whole bucket",)),
            Level.FAILURE,
            "not narrowed: listing the whole bucket",
        ),
    ],
)
def test_what_came_of_trying_its_role(trial: Trial, level: Level, words: str) -> None:
    tenant = Tenant.model_validate(
        {"name": "acme", "cluster": "one", "storage": "s3://lake/acme", "credentials": ROLE}
    )
    found = judge_credentials(tenant, trial)
    assert (found.level, words in found.found) == (level, True)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShortLivedS3]:
    with ShortLivedS3(60.0) as server:
        monkeypatch.setenv("AIRFLOW_CONN_AWS", server.connection())
        aws.forget("aws")
        yield server
        aws.forget("aws")


def role_tenants() -> dict[str, Tenant]:
    acme = {"name": "acme", "cluster": "one", "storage": "s3://lake/tenants/acme", "credentials": ROLE}
    bare = {"name": "bare", "cluster": "one"}
    return {"acme": Tenant.model_validate(acme), "bare": Tenant.model_validate(bare)}


async def test_a_role_is_tried_and_nothing_is_left(s3: ShortLivedS3) -> None:
    trials = await try_roles(role_tenants())
    assert list(trials) == ["acme"]
    trial = trials["acme"][1]
    assert (trial.trouble, trial.reached) == ("", ())
    assert trial.probe_url.startswith(s3.url)
    assert len(s3.objects) == 1
    await forget_roles(trials)
    assert s3.objects == {}


async def test_a_storage_that_narrows_nothing_is_found_out(s3: ShortLivedS3) -> None:
    s3.narrows = False
    trial = (await try_roles(role_tenants()))["acme"][1]
    assert trial.reached[0] == "assuming the role anew, whole"
    assert trial.reached[1] == "listing the siblings of tenants/acme/"
    assert trial.reached[-1].startswith("reading below tenants/acme-raytenant-doctor/")


async def test_a_role_that_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(conn_id: str) -> str:
        raise ConnectionConfigError(f"connection {conn_id}: found none; allowed: one that is defined")

    monkeypatch.setattr(tenant_module, "read_uri", nothing)
    trials = await try_roles(role_tenants())
    assert "connection aws: found none" in trials["acme"][1].trouble
    await forget_roles(trials)
