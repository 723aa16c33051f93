"""What a job was granted, in files that its processes read: credentials that renew themselves, and secrets.

AWS's tools ask a `credential_process` again when credentials are about to expire. Here that is a `cat` of a
file that the runner keeps fresh, so a program that runs for days never notices.

All jobs of a node run as one user of the system: what keeps these files from a neighbour is nothing but that
user's good will. See docs/security.md.
"""

from __future__ import annotations

import json
import os
import shlex

PARENTS = ("/tmp", "/var/tmp")
# A node may name a place of its own for these files, such as a file system in memory.
PLACE_VARIABLE = "RAYTENANT_ACCESS_DIR"
_NAME = "raytenant-access"
_GRANT = "grant.json"
_CREDENTIALS = "credentials.json"
_CONFIG = "config"
_OWNER = "owner"

# All by which AWS's tools would find other credentials, or another S3, than those of the job.
_OTHERS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_CREDENTIAL_FILE",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "BOTO_CONFIG",
)


class GrantFiles:
    """A directory of mode 0700 with what one job was granted, on one node."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def make(cls, name: str) -> GrantFiles:
        """A new one, in place of what an earlier process of that name has left. Raises OSError."""
        problem = OSError("no directory for temporary files")
        for path in _paths(name):
            try:
                if os.path.lexists(path) and os.lstat(path).st_uid == os.getuid():
                    remove_directory(path)
                os.mkdir(path, 0o700)
            except OSError as error:
                problem = error
            else:
                files = cls(path)
                files._write(_OWNER, json.dumps(_this_process()))
                return files
        raise problem

    @classmethod
    def find(cls, name: str) -> GrantFiles | None:
        """The one of that name on this node, if there is one and it is ours."""
        for path in _paths(name):
            try:
                if os.lstat(path).st_uid == os.getuid() and os.path.exists(os.path.join(path, _GRANT)):
                    return cls(path)
            except OSError:
                continue
        return None

    def write(self, grant: dict[str, object]) -> None:
        """Put a grant there; who reads meanwhile sees the one before or this one. Raises OSError."""
        self._write(_CREDENTIALS, json.dumps(grant["credentials"]))
        source = shlex.quote(os.path.join(self.path, _CREDENTIALS))
        self._write(_CONFIG, f"[default]\ncredential_process = cat {source}\n")
        self._write(_GRANT, json.dumps(grant))

    def read(self) -> dict[str, object]:
        """The grant. Raises OSError, ValueError."""
        with open(os.path.join(self.path, _GRANT), encoding="utf-8") as file:
            grant: dict[str, object] = json.load(file)
        return grant

    def apply(self, environment: dict[str, str], grant: dict[str, object]) -> None:
        """Change an environment so that programs find these credentials, and no others, and the secrets."""
        for variable in _OTHERS:
            environment.pop(variable, None)
        environment["AWS_CONFIG_FILE"] = os.path.join(self.path, _CONFIG)
        # A node's own file would be read first.
        environment["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
        environment["AWS_EC2_METADATA_DISABLED"] = "true"
        environment["AWS_SDK_LOAD_CONFIG"] = "1"
        if isinstance(grant.get("endpoint_url"), str):
            environment["AWS_ENDPOINT_URL"] = str(grant["endpoint_url"])
        if isinstance(grant.get("region"), str):
            environment["AWS_REGION"] = environment["AWS_DEFAULT_REGION"] = str(grant["region"])
        environment.update(secrets_of(grant))

    def remove(self) -> None:
        """Remove it with all that it holds."""
        remove_directory(self.path)

    def _write(self, name: str, text: str) -> None:
        path = os.path.join(self.path, name)
        part = f"{path}.{os.getpid()}.part"
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        os.replace(part, path)


def secrets_of(grant: dict[str, object]) -> dict[str, str]:
    """Names of environment variables to secret values."""
    secrets = grant.get("secrets")
    return secrets if isinstance(secrets, dict) else {}


def values_to_mask(grant: dict[str, object]) -> list[str]:
    """All of a grant that must not be printed."""
    credentials = grant["credentials"]
    keys = ("SecretAccessKey", "SessionToken")
    own = (
        [str(credentials[key]) for key in keys if key in credentials] if isinstance(credentials, dict) else []
    )
    return [*secrets_of(grant).values(), *own]


def expiry(grant: dict[str, object]) -> float:
    """When its credentials expire, in seconds since the epoch; 0 where it does not say."""
    expires = grant.get("expires")
    return float(expires) if isinstance(expires, (int, float)) else 0.0


def remove_left_behind() -> None:
    """Remove the directories of processes that were killed before they could do it themselves."""
    for parent in _parents():
        try:
            names = [name for name in os.listdir(parent) if name.startswith(f"{_NAME}-{os.getuid()}-")]
        except OSError:
            continue
        for path in (os.path.join(parent, name) for name in names):
            if _is_left_behind(path):
                remove_directory(path)


def remove_directory(path: str) -> None:
    """Remove a directory of files; what cannot be removed stays."""
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        return


def _is_left_behind(path: str) -> bool:
    try:
        with open(os.path.join(path, _OWNER), encoding="utf-8") as file:
            pid, started = json.load(file)
        return bool(_start_of(int(pid)) != started)
    except (OSError, ValueError, TypeError):
        return False


def _this_process() -> list[object]:
    return [os.getpid(), _start_of(os.getpid())]


def _start_of(pid: int) -> str | None:
    """What tells a process from a later one with its number; `None` where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The program's name, in brackets, may hold anything.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return ""


def _paths(name: str) -> list[str]:
    return [os.path.join(parent, f"{_NAME}-{os.getuid()}-{name}") for parent in _parents()]


def _parents() -> tuple[str, ...]:
    own = os.environ.get(PLACE_VARIABLE)
    return (own,) if own else PARENTS
