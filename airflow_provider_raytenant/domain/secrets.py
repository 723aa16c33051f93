"""Secrets by reference: a DAG names them, and whoever submits the job looks them up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from airflow_provider_raytenant.exceptions import RequestError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
OWN_NAMES: Final = "RAYTENANT_"
"""What names of the environment that are ours begin with."""


@dataclass(frozen=True)
class Secret:
    """Where a secret stands in Airflow, for a job's ``secrets``::

        secrets={
            "DB_PASSWORD": Secret.variable("acme_db_password"),
            "DSN": Secret.connection("acme_warehouse"),
        }

    The value is looked up through Airflow's secrets backends when the job is submitted. It is in no argument,
    no template, no XCom, and nowhere in what Ray shows.
    """

    kind: Literal["variable", "connection"]
    name: str

    def __post_init__(self) -> None:
        if self.kind not in ("variable", "connection"):
            raise RequestError(f"secrets: found kind {self.kind!r}; allowed: variable, connection")
        if not isinstance(self.name, str) or not self.name.strip():
            raise RequestError(f"secrets: found {self.name!r}; allowed: the name of a {self.kind}")

    @classmethod
    def variable(cls, name: str) -> Self:
        """The value of an Airflow variable, ``Secret.variable("acme_db_password")``."""
        return cls("variable", name)

    @classmethod
    def connection(cls, name: str) -> Self:
        """An Airflow connection as a URI, ``Secret.connection("acme_warehouse")``."""
        return cls("connection", name)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` gave."""
        return cls(**data)

    def to_json(self) -> dict[str, str]:
        """For a trigger's arguments."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def checked_secrets(secrets: Any) -> dict[str, Secret]:
    """A task's ``secrets``: names of environment variables to where their values stand.

    :raises RequestError: saying what was found and what is allowed.
    """
    if secrets is None:
        return {}
    if not isinstance(secrets, Mapping):
        # Not shown: somebody may have given the secret itself.
        raise RequestError(
            f'secrets: found a {type(secrets).__name__}; allowed: {{"NAME": Secret.variable("...")}}'
        )
    for name, secret in secrets.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name) or name.startswith(OWN_NAMES):
            raise RequestError(
                f"secrets: found the name {name!r}; allowed: names of environment variables, "
                f"without {OWN_NAMES}"
            )
        if not isinstance(secret, Secret):
            raise RequestError(
                f"secrets[{name!r}]: found a {type(secret).__name__}; "
                'allowed: Secret.variable("...") or Secret.connection("...")'
            )
    return dict(secrets)
