"""The ticket of a try as an object below its tenant's prefix, and how it is renewed and taken away.

The ticket holds credentials and secrets. Its address (a presigned URL) is a secret too, until the runner has
claimed the ticket: read it, and removed it. What comes later, renewed credentials, lies at a second place,
the address of which stands only in the ticket and in each renewal, signed by the credentials beside it. So no
address outlives what signed it, and none stands where Ray shows it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.storage.aws import asking, aws_connection
from airflow_provider_raytenant.storage.credentials import Credentials, assume


class TicketOffice:
    """Issues, renews and withdraws what one try's job needs. Every method blocks; one at a time is served.

    ``credentials``: the newest that it gave out, ``None`` before.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._lock = threading.Lock()
        self._session: _Session | None = None

    @property
    def credentials(self) -> Credentials | None:
        return None if self._session is None else self._session.credentials

    def issue(self, secrets: Mapping[str, str]) -> str:
        """Write the ticket; the URL by which the runner claims it. Two requests.

        :param secrets: names of environment variables to their values.
        :raises ConnectionConfigError: there is no such connection.
        :raises StorageDeniedError, StorageUnavailableError: what STS or S3 says.
        """
        with self._lock:
            session = self._assume()
            key = self.access.ticket_key
            remove = session.url("delete_object", key)
            session.put(key, {**session.grant(), "secrets": dict(secrets), "remove_url": remove})
            return session.url("get_object", key)

    def renew(self) -> None:
        """Put new credentials where the job looks for them. Two requests; raises as :meth:`issue`."""
        with self._lock:
            session = self._assume()
            session.put(self.access.renewed_key, session.grant())

    def withdraw(self) -> None:
        """Remove what is left of both. One request, two where the credentials are over; raises as above."""
        with self._lock:
            session = self._session
            if session is None or session.credentials.seconds_left < _TOO_SHORT:
                session = self._assume()
            session.remove(self.access.ticket_key, self.access.renewed_key)

    def _assume(self) -> _Session:
        self._session = _Session(self.access, assume(self.access))
        return self._session


_TOO_SHORT = 30.0
"""Seconds of life below which credentials are not begun anything with."""


class _Session:
    """S3 with one set of credentials."""

    def __init__(self, access: Access, credentials: Credentials) -> None:
        self.credentials = credentials
        self._access = access
        self._connection = aws_connection(access.aws_conn_id)
        self._s3 = self._connection.s3(credentials)
        # The address is part of what is signed.
        elsewhere = access.node_endpoint_url
        self._for_nodes = self._connection.s3(credentials, elsewhere) if elsewhere else self._s3

    def grant(self) -> dict[str, Any]:
        """What a job is told of its storage."""
        return {
            "submission_id": self._access.submission_id,
            "credentials": self.credentials.as_process_output(),
            "expires": self.credentials.expires,
            "renewed_url": self.url("get_object", self._access.renewed_key),
            "endpoint_url": self._access.node_endpoint_url or self._connection.s3_endpoint,
            "region": self._connection.region,
        }

    def url(self, operation: str, key: str) -> str:
        """A presigned URL, good for nodes, and for as long as its credentials."""
        place = {"Bucket": self._access.bucket, "Key": key}
        life = max(1, int(self.credentials.seconds_left))
        return str(self._for_nodes.generate_presigned_url(operation, Params=place, ExpiresIn=life))

    def put(self, key: str, content: Mapping[str, Any]) -> None:
        """Write an object."""
        with asking(f"{key} cannot be written to bucket {self._access.bucket}"):
            self._s3.put_object(
                Bucket=self._access.bucket,
                Key=key,
                Body=json.dumps(content).encode(),
                ContentType="application/json",
            )

    def remove(self, *keys: str) -> None:
        """Remove objects, be they there or not."""
        with asking(f"the ticket of job {self._access.submission_id} cannot be removed"):
            self._s3.delete_objects(
                Bucket=self._access.bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
