"""The states of a Ray job and of an outcome, with the groups that code asks for."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """Ray's status of a job (``ray/dashboard/modules/job/common.py``)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        """Whether the job will not change any more."""
        return self in TERMINAL


TERMINAL = frozenset({JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED})
LIVE = frozenset({JobStatus.PENDING, JobStatus.RUNNING})
