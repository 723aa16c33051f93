"""A storage whose credentials live for seconds, behind the Airflow connection ``aws_short``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.storage import aws
from tests.fakes.short_lived_s3 import ShortLivedS3

LIFE = 14.0
ROLE = "arn:aws:iam::000000000000:role/tenant-jobs"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShortLivedS3]:
    """The server; its connection is read anew by every test."""
    with ShortLivedS3(LIFE) as server:
        monkeypatch.setenv("AIRFLOW_CONN_AWS_SHORT", server.connection())
        aws.forget("aws_short")
        yield server
        aws.forget("aws_short")


@pytest.fixture
def access() -> Access:
    return Access("aws_short", ROLE, "s3://lake/tenants/acme", "acme-d-t-try1-0a1b2c")
