from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.checks.tenant import judge_credentials
from airflow_provider_raytenant.domain.tenants import Tenant

ROLE = {"aws_conn_id": "aws", "role_arn": "arn:aws:iam::000000000000:role/jobs"}


@pytest.mark.parametrize(
    ("more", "level", "words"),
    [
        ({"storage": "s3://lake/acme", "credentials": "node"}, Level.OK, "the nodes' own"),
        ({}, Level.OK, "no storage"),
        ({"storage": "s3://lake/acme", "credentials": ROLE}, Level.WARNING, "are refused"),
    ],
)
def test_a_role_is_a_warning_since_its_dags_are_refused(
    more: dict[str, Any], level: Level, words: str
) -> None:
    tenant = Tenant.model_validate({"name": "acme", "cluster": "one", **more})
    found = judge_credentials(tenant)
    assert (found.level, words in found.found) == (level, True)
