"""S3 and STS behind an Airflow connection, kept for a while: a client costs more to make than to ask.

A new boto3 session reads and parses the models of its services: 0.3 s of CPU. A client out of a session that
is there already takes 10 ms (measured with botocore 1.44).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_raytenant.exceptions import (
    ConnectionConfigError,
    StorageDeniedError,
    StorageUnavailableError,
)

if TYPE_CHECKING:
    from airflow_provider_raytenant.storage.credentials import Credentials

KEPT_SECONDS: Final = 600.0
"""How long a connection is taken for unchanged."""

_TIMEOUTS: Final = {
    "connect_timeout": 5,
    "read_timeout": 15,
    "retries": {"mode": "standard", "total_max_attempts": 3},
}
_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MalformedPolicyDocument",
        "NoSuchBucket",
        "PackedPolicyTooLarge",
        "SignatureDoesNotMatch",
        "ValidationError",
    }
)


@dataclass(frozen=True)
class AwsConnection:
    """What an Airflow connection of type ``aws`` says, as boto3 takes it."""

    session: Any
    sts: Any
    s3_endpoint: str | None
    sts_endpoint: str | None
    region: str | None
    verify: Any
    config: Any

    def s3(self, credentials: Credentials, endpoint_url: str | None = None) -> Any:
        """A client of S3 with these credentials instead of the connection's own.

        :param endpoint_url: another address than the connection's.
        """
        return self._client("s3", credentials, endpoint_url or self.s3_endpoint)

    def sts_of(self, credentials: Credentials) -> Any:
        """A client of STS with these credentials."""
        return self._client("sts", credentials, self.sts_endpoint)

    def _client(self, service: str, credentials: Credentials, endpoint_url: str | None) -> Any:
        from botocore.config import Config

        config = self.config.merge(Config(signature_version="s3v4")) if service == "s3" else self.config
        # One session is not to be used by two threads while it makes a client.
        with _LOCK:
            return self.session.client(
                service,
                aws_access_key_id=credentials.access_key,
                aws_secret_access_key=credentials.secret_key,
                aws_session_token=credentials.token,
                endpoint_url=endpoint_url,
                verify=self.verify,
                config=config,
            )


_LOCK: Final = threading.RLock()
_KEPT: Final[dict[str, tuple[float, AwsConnection]]] = {}


def aws_connection(aws_conn_id: str) -> AwsConnection:
    """The clients of a connection, at most :data:`KEPT_SECONDS` old. Blocks: it asks Airflow.

    :raises ConnectionConfigError: there is no such connection.
    """
    with _LOCK:
        made, connection = _KEPT.get(aws_conn_id, (0.0, None))
        if connection is None or time.monotonic() - made > KEPT_SECONDS:
            connection = _connect(aws_conn_id)
            _KEPT[aws_conn_id] = (time.monotonic(), connection)
        return connection


def forget(aws_conn_id: str) -> None:
    """Read this connection anew when it is needed next: it may have been changed."""
    with _LOCK:
        _KEPT.pop(aws_conn_id, None)


def _connect(aws_conn_id: str) -> AwsConnection:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException
    from botocore.config import Config

    hook: Any = AwsBaseHook(aws_conn_id=aws_conn_id, client_type="sts")
    try:
        # The hook itself would go on without a connection, with whatever rights this process has.
        hook.get_connection(aws_conn_id)
    except AirflowNotFoundException:
        raise ConnectionConfigError(
            f"aws_conn_id: found {aws_conn_id!r}, which is not defined; "
            "allowed: an Airflow connection of type aws"
        ) from None
    wrapper = hook.conn_config
    config = hook.config.merge(Config(**_TIMEOUTS))
    s3_endpoint, sts_endpoint = (wrapper.get_service_endpoint_url(service) for service in ("s3", "sts"))
    with asking(f"connection {aws_conn_id}"):
        session = hook.get_session()
        sts = session.client("sts", endpoint_url=sts_endpoint, verify=hook.verify, config=config)
    return AwsConnection(session, sts, s3_endpoint, sts_endpoint, session.region_name, hook.verify, config)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """boto3's errors as ours."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        text = f"{what}: {error}"
        if code in _DENIED or status in (400, 401, 403):
            raise StorageDeniedError(text, code=code) from None
        raise StorageUnavailableError(text, code=code) from None
    except BotoCoreError as error:
        raise StorageUnavailableError(f"{what}: {error}") from None
