"""What the one who submits a job needs to give it scoped credentials and secrets."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from airflow_provider_raytenant.domain.durations import parse_duration
from airflow_provider_raytenant.domain.secrets import Secret
from airflow_provider_raytenant.domain.session_policy import session_policy
from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix

FOLDER: Final = ".raytenant"
"""Below a tenant's prefix: what we put there ourselves."""

SHORTEST_SECONDS: Final = 900
"""The shortest life of a session that STS gives."""

LONGEST_SECONDS: Final = 12 * 3600
"""The longest, where the role allows it; AWS gives one hour at most to a session made from a session."""

DEFAULT_SECONDS: Final = 3600

CLAIM_VARIABLE: Final = "RAYTENANT_CLAIM"
"""The variable by which the runner gets the address of its ticket. It opens nothing after the claim."""


def checked_lifetime(value: Any) -> int:
    """Seconds of ``"90m"`` or of a whole number of seconds, as STS gives them.

    :raises ValueError: saying what was found and what is allowed.
    """
    seconds: Any = None
    with contextlib.suppress(ValueError):
        seconds = parse_duration(value) if isinstance(value, str) else value
    whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    if whole and SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        return int(seconds)
    allowed = f"{SHORTEST_SECONDS // 60}m to {LONGEST_SECONDS // 3600}h, as 90m or as seconds"
    raise ValueError(f"found {value!r}; allowed: {allowed}")


@dataclass(frozen=True)
class Access:
    """Credentials and secrets of one try, by reference: nothing in it is secret, so a trigger may keep it.

    :param aws_conn_id: the Airflow connection that may assume the role, ``"aws_lake"``.
    :param role_arn: the role, ``"arn:aws:iam::000000000000:role/tenant-jobs"``.
    :param prefix: the tenant's prefix, ``"s3://lake/tenants/acme"``.
    :param submission_id: the job's.
    :param duration: seconds that credentials are asked for.
    :param node_endpoint_url: where nodes find S3, if elsewhere than Airflow does.
    :param secrets: names of environment variables to where their values stand.
    """

    aws_conn_id: str
    role_arn: str
    prefix: str
    submission_id: str
    duration: int = DEFAULT_SECONDS
    node_endpoint_url: str | None = None
    secrets: Mapping[str, Secret] = field(default_factory=dict)

    @property
    def bucket(self) -> str:
        """The bucket of the prefix."""
        return StoragePrefix.parse(self.prefix).bucket

    @property
    def ticket_key(self) -> str:
        """The key of the ticket: what the runner claims, once."""
        return self._key("tickets")

    @property
    def renewed_key(self) -> str:
        """The key of the newest credentials, which the runner looks for."""
        return self._key("renewed")

    @property
    def session_name(self) -> str:
        """The session's name, which an audit log shows: the end of the submission id is its hash."""
        return re.sub(r"[^\w+=,.@-]", "-", self.submission_id)[-64:]

    @property
    def policy(self) -> str:
        """The session policy as JSON."""
        return session_policy(StoragePrefix.parse(self.prefix), self.role_arn.split(":")[1])

    def to_json(self) -> dict[str, Any]:
        """For a trigger's arguments; :meth:`from_json` is the way back."""
        return {**asdict(self), "secrets": {name: each.to_json() for name, each in self.secrets.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` gave."""
        secrets = {name: Secret.from_json(each) for name, each in data["secrets"].items()}
        return cls(**{**data, "secrets": secrets})

    def _key(self, kind: str) -> str:
        segments = (*StoragePrefix.parse(self.prefix).segments, FOLDER, kind, f"{self.submission_id}.json")
        return "/".join(segments)
