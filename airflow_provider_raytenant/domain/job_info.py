"""What Ray says of a job, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_raytenant.domain.status import JobStatus


@dataclass(frozen=True)
class JobInfo:
    """One record of Ray's jobs API.

    ``start_time`` is the time of the submit, ``end_time`` that of the end, both in milliseconds since
    the epoch. ``exit_code`` is negative for a signal and ``None`` for a stopped job. ``ray_job_id`` is Ray's
    own id of the last driver that has called ``ray.init``.
    """

    submission_id: str
    status: JobStatus
    message: str = ""
    error_type: str | None = None
    exit_code: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    entrypoint: str = ""
    driver_node_id: str | None = None
    ray_job_id: str | None = None

    @classmethod
    def from_ray(cls, data: Mapping[str, Any]) -> JobInfo:
        """From a record of ``GET /api/jobs/`` (Ray 2.60).

        :raises ValueError, KeyError: it is not such a record.
        """
        return cls(
            submission_id=str(data["submission_id"]),
            status=JobStatus(data["status"]),
            message=data.get("message") or "",
            error_type=data.get("error_type"),
            exit_code=data.get("driver_exit_code"),
            start_time=data.get("start_time"),
            end_time=data.get("end_time"),
            metadata=data.get("metadata") or {},
            entrypoint=data.get("entrypoint") or "",
            driver_node_id=data.get("driver_node_id"),
            ray_job_id=data.get("job_id"),
        )
