"""The error tree of the provider.

::

    RayTenantError
    ├── TerminalError                 trying again cannot help
    │   ├── TenantFileError           the tenant file is wrong (file, key path, found, allowed)
    │   ├── ConnectionConfigError     the Airflow connection is wrong
    │   ├── RequestError              an argument of the operator is wrong
    │   │   └── PolicyError           ... or the tenant's rules forbid it
    │   ├── DoesNotFitError           driver or worker fits no node of the cluster
    │   ├── RayAuthError              Ray wants a token, or another one
    │   ├── RayRequestError           Ray refused the request itself (4xx)
    │   ├── RuntimeEnvError           Ray could not build the runtime environment
    │   ├── StorageDeniedError        S3 or STS refuses what the tenant's role should allow
    │   ├── SecretNotFoundError       Airflow has no such variable or connection
    │   ├── JobResultError            the job's result cannot become an XCom
    │   └── PoolsError                pools cannot be planned or written as things stand
    └── RetryableError                another try may succeed
        ├── DatabaseUnavailableError  no sound answer from Airflow's database
        ├── RayUnavailableError       no sound answer: unreachable, 5xx, broken or late
        │   └── JobNotFoundError      Ray does not know the submission id
        ├── StorageUnavailableError   no sound answer from S3 or STS
        ├── ResultLostError           the job succeeded, but what it handed back cannot be read
        ├── PackageLostError          a package of the job left the cluster before its start
        └── JobFailedError            the job ended, and not well: user code, by its exit code
            ├── JobKilledError        a signal ended it, often for want of memory
            ├── JobTimeoutError       it ran longer than ``job_timeout`` or ``execution_timeout``
            ├── JobSetupError         its runtime environment could not be set up this time
            ├── JobStartTimeoutError  it waited longer than ``queue_timeout``, or than Ray allows
            ├── TicketLostError       its ticket was claimed before, or its storage was away
            ├── JobLostError          its node or supervisor died, or Ray forgot it
            └── JobStoppedError       somebody stopped it

Whether a retry may help is part of the class, so no caller decides it by reading a message.
Every error can be pickled: it crosses process borders in Airflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class TinyRequestWarning(UserWarning):
    """A task asks for so little that a job on the cluster costs more than it does (the tenant's ``tiny``)."""


class RayTenantError(Exception):
    """Root of the tree. ``details`` holds what the message says, for programs (JSON types only)."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.details))


def _rebuild(cls: type[RayTenantError], message: str, details: dict[str, Any]) -> RayTenantError:
    return cls(message, **details)


class TerminalError(RayTenantError):
    """Trying again cannot help: the task fails without using up its retries."""


class RetryableError(RayTenantError):
    """Another try may succeed."""


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong in a file or a set of arguments.

    ``key_path`` is dotted (``tenants.acme.limit``); ``found`` and ``allowed`` are short texts.
    """

    key_path: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.key_path}: found {self.found}; allowed: {self.allowed}"


class TenantFileError(TerminalError):
    """The tenant file cannot be used. ``problems`` lists every one that was seen."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return (TenantFileError, (self.file, self.problems))


class ConnectionConfigError(TerminalError):
    """The Airflow connection holds something that cannot be used."""


class RequestError(TerminalError):
    """An argument of the operator is wrong, by itself or together with another."""


class PolicyError(RequestError):
    """The tenant's rules forbid what is asked for."""


class DoesNotFitError(TerminalError):
    """A driver or a worker asks for more than any node of the cluster has."""


class RayAuthError(TerminalError):
    """Ray wants a token (401) or does not accept the one it got (403)."""


class RayRequestError(TerminalError):
    """Ray refused the request itself (a 4xx other than 401, 403, 404, 408 and 429)."""


class RuntimeEnvError(TerminalError):
    """Ray could not build the runtime environment: the request itself has to change."""


class StorageDeniedError(TerminalError):
    """S3 or STS refuses what the tenant's role should allow. ``code`` in the details is theirs."""


class SecretNotFoundError(TerminalError):
    """Airflow has no variable or connection of a name in a task's ``secrets``."""


class JobResultError(TerminalError):
    """The entrypoint succeeded, but its result cannot become an XCom."""


class PoolsError(TerminalError):
    """The pools cannot be planned or written as things stand."""


class DatabaseUnavailableError(RetryableError):
    """No sound answer from Airflow's database."""


class RayUnavailableError(RetryableError):
    """No sound answer from the dashboard: unreachable, 5xx, broken or late."""


class JobNotFoundError(RayUnavailableError):
    """Ray does not know the submission id (404)."""


class StorageUnavailableError(RetryableError):
    """No sound answer from S3 or STS."""


class ResultLostError(RetryableError):
    """The job succeeded, but its end record, and with it its result, cannot be read any more."""


class PackageLostError(RetryableError):
    """A package that the job needs left the cluster between upload and submit."""


class JobFailedError(RetryableError):
    """The job ended FAILED: user code, by its exit code (``exit_code`` in the details)."""


class JobKilledError(JobFailedError):
    """A signal ended the job. ``signal`` names it; ``out_of_memory`` is true where Ray says so."""


class JobTimeoutError(JobFailedError):
    """The job's time was over, and it was ended for it. ``deadline`` in the details names which time."""


class JobSetupError(JobFailedError):
    """The runtime environment could not be set up this time: a registry or a store may have been away."""


class JobStartTimeoutError(JobFailedError):
    """The job waited in Ray longer than ``queue_timeout``, or than Ray's own start time-out (900 s).

    ``deadline`` in the details names which.
    """


class TicketLostError(JobFailedError):
    """The job's ticket was gone when its runner came to claim it, or could not be had.

    Somebody else may have claimed it: what is in it must then be held for known.
    """


class JobLostError(JobFailedError):
    """The job's node or supervisor died, or Ray no longer knows the job."""


class JobStoppedError(JobFailedError):
    """The job was stopped, and not by its own task."""
