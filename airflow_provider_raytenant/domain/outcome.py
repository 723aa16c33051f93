"""What became of a job: Ray's last record and the runner's end record, read into one outcome."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from airflow_provider_raytenant import exceptions
from airflow_provider_raytenant.domain.durations import LONGEST
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.usage import RUN_SECONDS
from airflow_provider_raytenant.exceptions import (
    JobFailedError,
    JobKilledError,
    JobLostError,
    JobResultError,
    JobSetupError,
    JobStartTimeoutError,
    JobStoppedError,
    JobTimeoutError,
    RayTenantError,
    ResultLostError,
    RuntimeEnvError,
    TerminalError,
    TicketLostError,
)

FAILURE_KEY: Final = "raytenant_failure"
"""The XCom of a failed task: class, message, whether a retry may help, Ray's error type, exit code."""

_BY_ERROR_TYPE: Final[Mapping[str, tuple[type[RayTenantError], str]]] = {
    "RUNTIME_ENV_SETUP_FAILURE": (RuntimeEnvError, "Ray could not set up the runtime environment"),
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": (
        RuntimeEnvError,
        "Ray could not start the job as it was asked for",
    ),
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": (JobStartTimeoutError, "Ray found no room for the job in time"),
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": (JobStartTimeoutError, "Ray could not place the job"),
    "JOB_SUPERVISOR_ACTOR_DIED": (JobLostError, "the job's supervisor died"),
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": (JobLostError, "the job's supervisor failed"),
}

_SETUP_FAILED: Final = "RUNTIME_ENV_SETUP_FAILURE"
_HOPELESS: Final = re.compile(
    r"No matching distribution|Could not find a version|ResolutionImpossible|Invalid requirement|"
    r"No solution found|conflicting dependencies",
    re.IGNORECASE,
)
"""What pip and uv say of requirements that no retry can meet."""

_UNREACHABLE: Final = re.compile(
    r"Retrying \(Retry|connection broken|NewConnectionError|Max retries|timed? ?out|Temporary failure|"
    r"ProxyError|SSLError|Failed to fetch|error sending request|50[0234] (Server|Service|Bad|Gateway)",
    re.IGNORECASE,
)
"""What they say of an index that is away. With it pip finds "no matching distribution", too (tried)."""

_BAD_REQUEST: Final = re.compile(
    r"\b(ValueError|TypeError|KeyError|AttributeError|AssertionError|NotImplementedError|FileNotFoundError|"
    r"ValidationError)\b"
)
"""What stands in Ray's message where it could make nothing of the request. Everything else that happens
while it starts a supervisor, as a head that dies, has the same error type."""

_NO_SUPERVISOR: Final = re.compile("failed to get job supervisor", re.IGNORECASE)
"""What Ray says where the supervisor of a job that ran is gone; the error type is that of a bad request."""

_OUT_OF_MEMORY: Final = re.compile(
    r"low on memory|OutOfMemory|out[ -]of[ -]memory|oom[- ]?kill|MemoryError", re.IGNORECASE
)
"""What Ray's memory monitor says of a process it killed, and Python of a task that died of it."""

_SHOWN_LINES: Final = 12
"""So many of the last lines of a long message stand in the error; the whole is in its details."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended: well, with ``result`` (``None`` where it wrote none), or with ``error``.

    ``skipped``: its exit code says that its task is to be skipped. ``usage``: how long it ran and what it
    held at most, as the XCom ``raytenant_usage`` says it; ``None`` if nothing of it is known.
    """

    submission_id: str
    result: Any = None
    error: RayTenantError | None = None
    skipped: bool = False
    usage: Mapping[str, Any] | None = None

    @property
    def retryable(self) -> bool:
        """Whether another try may end better."""
        return not isinstance(self.error, TerminalError)

    def failure(self) -> dict[str, Any] | None:
        """The error as JSON: ``error`` (class), ``message``, ``retryable`` and its details."""
        if self.error is None:
            return None
        return {
            "error": type(self.error).__name__,
            "message": str(self.error),
            "retryable": self.retryable,
            "submission_id": self.submission_id,
            **self.error.details,
        }

    def to_json(self) -> dict[str, Any]:
        """For the trigger's event; :meth:`from_json` is the way back."""
        return {
            "submission_id": self.submission_id,
            "result": self.result,
            "failure": self.failure(),
            "skipped": self.skipped,
            "usage": self.usage,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome of an event, its error an instance of the class it had."""
        failure, usage = data.get("failure"), data.get("usage")
        if failure is None:
            skipped = bool(data.get("skipped"))
            return cls(data["submission_id"], result=data.get("result"), skipped=skipped, usage=usage)
        kind = getattr(exceptions, failure["error"])
        details = {
            k: v for k, v in failure.items() if k not in ("error", "message", "retryable", "submission_id")
        }
        return cls(data["submission_id"], error=kind(failure["message"], **details), usage=usage)


def outcome_of(
    job: JobInfo,
    record: Mapping[str, Any] | None,
    *,
    deadline: tuple[str, float] | None = None,
    skip_on: Collection[int] = (),
) -> Outcome:
    """The outcome of a job that has ended.

    :param job: Ray's last record; its status is terminal.
    :param record: the runner's end record, ``None`` if it could not write one (it was killed, or it
        never ran) or its log is gone.
    :param deadline: name and seconds of the deadline that the runner kept, ``("job_timeout", 3600)``.
    :param skip_on: exit codes of the entrypoint that skip the task.

    Its ``usage`` is how long the entrypoint ran, where the record says so: ``{"run_seconds": 1.5}``.
    """
    found = record is not None
    record = _sound(record or {})
    outcome = _outcome(job, record, found, deadline, skip_on)
    ran = _ran(record)
    return outcome if ran is None else replace(outcome, usage={RUN_SECONDS: ran})


def _outcome(
    job: JobInfo,
    record: Mapping[str, Any],
    found: bool,
    deadline: tuple[str, float] | None,
    skip_on: Collection[int],
) -> Outcome:
    if job.status is JobStatus.SUCCEEDED and not found:
        # The runner always leaves a record: without one there may have been a result.
        lost = f"the job succeeded, but its log, and so its result, cannot be read (job {job.submission_id})"
        return Outcome(job.submission_id, error=ResultLostError(lost))
    if job.status is JobStatus.SUCCEEDED:
        return Outcome(job.submission_id, result=record.get("result"))
    # Without a record the code might be the shell's or the runner's own.
    if record.get("outcome") == "exited" and not record.get("result_error") and job.exit_code in skip_on:
        return Outcome(job.submission_id, skipped=True)
    kind, text, more = _failure(job, record, deadline or ("job_timeout", 0.0))
    details: dict[str, Any] = {"error_type": job.error_type, "exit_code": job.exit_code}
    details["ray_message"] = job.message
    message = f"{text} (job {job.submission_id}{f', Ray says {job.error_type}' if job.error_type else ''})"
    if job.message.strip() and job.exit_code is None:
        # With an exit code the message only quotes the output, which is in the task's log already.
        message += f"\n{_last_lines(job.message)}"
    return Outcome(job.submission_id, error=kind(message, **details, **more))


def _sound(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record without what has another type than the runner writes: a job can print one of its own."""
    kinds: dict[str, Any] = {"seconds": (int, float), "result_error": Mapping}
    sound = {key: value for key, value in record.items() if isinstance(value, kinds.get(key, object))}
    if not 0 <= sound.get("seconds", 0) <= LONGEST:
        del sound["seconds"]
    return sound


def _ran(record: Mapping[str, Any]) -> float | None:
    """Seconds that the entrypoint ran; ``None`` where it did not start, or the record does not say it."""
    if record.get("outcome") not in ("exited", "signaled", "job_timeout"):
        return None
    return float(record["seconds"]) if "seconds" in record else None


_Failure = tuple[type[RayTenantError], str, dict[str, Any]]


def _failure(job: JobInfo, record: Mapping[str, Any], deadline: tuple[str, float]) -> _Failure:
    """Class, text and further details of a failure."""
    if record.get("outcome") == "job_timeout":
        name, seconds = deadline
        ran = f"ran longer than its {name} and was ended after {record.get('seconds', 0):.0f} s"
        return JobTimeoutError, ran, {"deadline": name, "seconds": seconds}
    if record.get("result_error"):
        error = record["result_error"]
        return (
            JobResultError,
            f"the result cannot become an XCom: {error.get('message')}",
            {"result_error": error},
        )
    if record.get("outcome") == "no_ticket":
        return JobStoppedError, "the job was stopped before it started: its entrypoint did not run", {}
    if record.get("outcome") == "no_claim":
        taken = "the job did not get its credentials: its ticket was claimed before, or could not be had"
        return TicketLostError, f"{taken}; its entrypoint did not run", {}
    if job.status is JobStatus.STOPPED:
        return JobStoppedError, "the job was stopped, and not by its task", {}
    known = _BY_ERROR_TYPE.get(job.error_type or "")
    if known is not None and job.exit_code is None:
        return _failure_in_ray(job, *known)
    return _failure_of_entrypoint(job)


def _failure_in_ray(job: JobInfo, kind: type[RayTenantError], text: str) -> _Failure:
    if kind is JobLostError and _OUT_OF_MEMORY.search(job.message):
        return JobKilledError, "Ray killed the job for want of memory on its node", {"out_of_memory": True}
    if _NO_SUPERVISOR.search(job.message):
        return JobLostError, "the job's supervisor is gone", {"lost": "supervisor"}
    hopeless = _HOPELESS.search(job.message) and not _UNREACHABLE.search(job.message)
    if job.error_type == _SETUP_FAILED and not hopeless:
        # A registry or a store may just have been away. The next try is not served from Ray's cache of
        # failures, which goes by the environment's content: the try's number is part of it.
        return JobSetupError, text, {}
    if job.error_type == "JOB_SUPERVISOR_ACTOR_START_FAILURE" and not _BAD_REQUEST.search(job.message):
        return JobSetupError, "Ray could not start the job this time", {}
    if kind is JobStartTimeoutError:
        return kind, text, {"deadline": "ray_start_timeout"}
    return kind, text, {"lost": "supervisor"} if kind is JobLostError else {}


def _failure_of_entrypoint(job: JobInfo) -> _Failure:
    code = job.exit_code
    if code is None:
        return JobFailedError, "the job failed without an exit code", {}
    number = -code if code < 0 else code - 128
    name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else ""
    if code < 0 or code == 128 + signal.SIGKILL:
        hint = "; often the node ran out of memory" if name == "SIGKILL" else ""
        text = f"the entrypoint was killed by {name or f'signal {number}'}{hint}"
        return JobKilledError, text, {"signal": name or str(number)}
    text = f"the entrypoint failed with exit code {code}"
    if _OUT_OF_MEMORY.search(job.message):
        return JobFailedError, f"{text}; its output speaks of a lack of memory", {"out_of_memory": True}
    return JobFailedError, text, {}


def _last_lines(message: str) -> str:
    """The end of a message, where pip and Python say what went wrong."""
    lines = message.strip().splitlines()
    cut = len(lines) - _SHOWN_LINES
    if cut <= 0:
        return "\n".join(lines)
    return "\n".join([f"[{cut} lines before these are in XCom {FAILURE_KEY}]", *lines[cut:]])
