"""What became of a job: Ray's last record and the runner's end record, read into one outcome."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_raytenant import exceptions
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobFailedError,
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


@dataclass(frozen=True)
class Outcome:
    """How a job ended: well, with ``result`` (``None`` where it wrote none), or with ``error``."""

    submission_id: str
    result: Any = None
    error: RayTenantError | None = None

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
        return {"submission_id": self.submission_id, "result": self.result, "failure": self.failure()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome of an event, its error an instance of the class it had."""
        failure = data.get("failure")
        if failure is None:
            return cls(data["submission_id"], result=data.get("result"))
        kind = getattr(exceptions, failure["error"])
        details = {
            k: v for k, v in failure.items() if k not in ("error", "message", "retryable", "submission_id")
        }
        return cls(data["submission_id"], error=kind(failure["message"], **details))


def outcome_of(job: JobInfo, record: Mapping[str, Any] | None) -> Outcome:
    """The outcome of a job that has ended.

    :param job: Ray's last record; its status is terminal.
    :param record: the runner's end record, ``None`` if it could not write one (it was killed, or it
        never ran) or its log is gone.
    """
    found = record is not None
    record = _sound(record or {})
    if job.status is JobStatus.SUCCEEDED and not found:
        # The runner always leaves a record: without one there may have been a result.
        lost = f"the job succeeded, but its log, and so its result, cannot be read (job {job.submission_id})"
        return Outcome(job.submission_id, error=ResultLostError(lost))
    if job.status is JobStatus.SUCCEEDED:
        return Outcome(job.submission_id, result=record.get("result"))
    details: dict[str, Any] = {"error_type": job.error_type, "exit_code": job.exit_code}
    details["ray_message"] = job.message
    kind, text = _failure(job, record)
    if record.get("result_error"):
        details["result_error"] = record["result_error"]
    ray_type = f", Ray says {job.error_type}" if job.error_type else ""
    message = f"{text} (job {job.submission_id}{ray_type})"
    if job.message.strip() and job.exit_code is None:
        # With an exit code the message only quotes the output, which is in the task's log already.
        message += f"\n{job.message.strip()}"
    return Outcome(job.submission_id, error=kind(message, **details))


def _sound(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record without what has another type than the runner writes: a job can print one of its own."""
    kinds: dict[str, Any] = {"seconds": (int, float), "result_error": Mapping}
    return {key: value for key, value in record.items() if isinstance(value, kinds.get(key, object))}


def _failure(job: JobInfo, record: Mapping[str, Any]) -> tuple[type[RayTenantError], str]:
    if record.get("outcome") == "job_timeout":
        return (
            JobTimeoutError,
            f"ran longer than its job_timeout and was ended after {record.get('seconds', 0):.0f} s",
        )
    if record.get("result_error"):
        return JobResultError, f"the result cannot become an XCom: {record['result_error'].get('message')}"
    if job.status is JobStatus.STOPPED:
        return JobStoppedError, "the job was stopped"
    known = _BY_ERROR_TYPE.get(job.error_type or "")
    if known is not None and job.exit_code is None:
        if job.error_type == _SETUP_FAILED and not _HOPELESS.search(job.message):
            # A registry or a store may just have been away. The next try is not served from Ray's cache of
            # failures, which goes by the environment's content: the try's number is part of it.
            return JobSetupError, known[1]
        return known
    return JobFailedError, _exit_text(job)


def _exit_text(job: JobInfo) -> str:
    if job.exit_code is None:
        return "the job failed without an exit code"
    number = -job.exit_code if job.exit_code < 0 else job.exit_code - 128
    name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else ""
    if job.exit_code < 0 or (name == "SIGKILL" and job.exit_code == 137):
        hint = "; often the node ran out of memory" if name == "SIGKILL" else ""
        return f"the entrypoint was killed by {name or f'signal {number}'}{hint}"
    return f"the entrypoint failed with exit code {job.exit_code}"
