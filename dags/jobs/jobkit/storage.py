"""Whole objects in the storage of the job's own tenant, read and written by URL (`s3://bucket/key`)."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import urlsplit


def url(path: str) -> str:
    """Where `path` lies under the tenant's prefix, which the provider names in RAYTENANT_STORAGE."""
    return f"{os.environ['RAYTENANT_STORAGE'].rstrip('/')}/{path}"


def read(source: str) -> bytes:
    """The object's content. Raises FileNotFoundError, with the URL, where there is none."""
    client, location = _client(), _location(source)
    try:
        content: bytes = client.get_object(**location)["Body"].read()
    except client.exceptions.NoSuchKey as error:
        raise FileNotFoundError(f"there is no object {source}") from error
    return content


def write_json(target: str, value: Any) -> None:
    """Writes `value`; raises ValueError for a NaN, which JSON does not have."""
    body = json.dumps(value, indent=2, allow_nan=False).encode()
    _client().put_object(**_location(target), Body=body, ContentType="application/json")


def _client() -> Any:
    """A client with the credentials and the AWS_ENDPOINT_URL that the job finds in its environment."""
    import boto3
    from botocore.config import Config

    return boto3.client("s3", config=Config(signature_version="s3v4"))


def _location(address: str) -> dict[str, str]:
    parts = urlsplit(address)
    if parts.scheme != "s3" or not parts.netloc or not parts.path.strip("/"):
        raise ValueError(f"expected s3://bucket/key, found {address!r}")
    return {"Bucket": parts.netloc, "Key": parts.path.lstrip("/")}
