"""The values of secrets that a task names, through Airflow's secrets backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from airflow_provider_raytenant.domain.secrets import Secret
from airflow_provider_raytenant.exceptions import RequestError, SecretNotFoundError

LARGEST_BYTES: Final = 100 * 1024
"""Linux takes no environment variable above 128 KiB."""


def look_up(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """Names of environment variables to values, each known to Airflow's masker from now on. Blocks.

    :raises SecretNotFoundError: there is no such variable or connection.
    :raises RequestError: a value cannot stand in an environment.
    """
    from airflow.sdk.log import mask_secret

    values = {}
    for name, secret in secrets.items():
        value = _value(secret)
        mask_secret(value)
        if not value or "\0" in value or len(value.encode()) > LARGEST_BYTES:
            raise RequestError(
                f"secrets[{name!r}]: found a value of {len(value.encode())} bytes in {secret}; "
                f"allowed: a text of 1 to {LARGEST_BYTES} bytes without a zero byte"
            )
        values[name] = value
    return values


def _value(secret: Secret) -> str:
    from airflow.sdk import BaseHook, Variable
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError, ErrorType

    missing = SecretNotFoundError(
        f"secrets: found {secret}, which Airflow does not know; allowed: one that is defined"
    )
    try:
        if secret.kind == "variable":
            return str(Variable.get(secret.name))
        return str(BaseHook.get_connection(secret.name).get_uri())
    except AirflowNotFoundException:
        raise missing from None
    except AirflowRuntimeError as error:
        if error.error.error in (ErrorType.VARIABLE_NOT_FOUND, ErrorType.CONNECTION_NOT_FOUND):
            raise missing from None
        raise
