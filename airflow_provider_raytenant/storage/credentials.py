"""Credentials of a role, narrowed to one tenant's prefix."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.exceptions import StorageDeniedError
from airflow_provider_raytenant.storage.aws import asking, aws_connection, forget


@dataclass(frozen=True)
class Credentials:
    """A session of STS. ``expires``: in seconds since the epoch, by the clock of who gave it."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(repr=False)
    expires: float

    @property
    def seconds_left(self) -> float:
        """How long they are still valid."""
        return self.expires - time.time()

    def as_process_output(self) -> dict[str, Any]:
        """In the form that AWS's tools read from a ``credential_process``."""
        return {
            "Version": 1,
            "AccessKeyId": self.access_key,
            "SecretAccessKey": self.secret_key,
            "SessionToken": self.token,
            "Expiration": datetime.fromtimestamp(self.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


def assume(access: Access) -> Credentials:
    """New credentials for a try. Blocks: one request to STS.

    :raises StorageDeniedError: the role cannot be assumed in this way.
    :raises StorageUnavailableError: no sound answer.
    """
    try:
        return _assume(access)
    except StorageDeniedError:
        # The connection may have been changed since it was read.
        forget(access.aws_conn_id)
        return _assume(access)


def _assume(access: Access) -> Credentials:
    from airflow.sdk.log import mask_secret

    connection = aws_connection(access.aws_conn_id)
    with asking(f"role {access.role_arn} cannot be assumed with connection {access.aws_conn_id}"):
        given = connection.sts.assume_role(
            RoleArn=access.role_arn,
            RoleSessionName=access.session_name,
            DurationSeconds=access.duration,
            Policy=access.policy,
        )["Credentials"]
    for secret in (given["SecretAccessKey"], given["SessionToken"]):
        mask_secret(secret)
    expires = given["Expiration"].timestamp()
    return Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], expires)
