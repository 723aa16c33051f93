"""Ray's own start time-out against ours: ours has to come first, since it can say why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.lifecycle import QUEUE_TIMEOUT

RAY_DEFAULT: Final = 900.0
"""``DEFAULT_JOB_START_TIMEOUT_SECONDS`` of Ray 2.60."""

VARIABLE: Final = "RAY_JOB_START_TIMEOUT_SECONDS"

_IN_MESSAGE = re.compile(r"failed to start within (\d+(?:\.\d+)?) seconds")


def seen_in_records(jobs: Iterable[JobInfo]) -> float | None:
    """The time-out in seconds that Ray itself named the last time it met one; ``None`` where it never did.

    Ray tells the setting to nobody, but names it in the message of a job that it failed for it.
    """
    failed = [job for job in jobs if job.error_type == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"]
    for job in sorted(failed, key=lambda job: job.end_time or 0, reverse=True):
        found = _IN_MESSAGE.search(job.message)
        if found is not None:
            return float(found[1])
    return None


def judge_start_timeout(seen: float | None) -> Finding:
    """Whether the default ``queue_timeout`` ends before Ray's.

    :param seen: seconds, where they are known.
    """
    ours = f"queue_timeout is {QUEUE_TIMEOUT:g} s unless a task says otherwise"
    if seen is None:
        return ok(
            "start time-out",
            f"Ray does not tell {VARIABLE}; its default of {RAY_DEFAULT:g} s is above ours ({ours})",
        )
    if seen > QUEUE_TIMEOUT:
        return ok("start time-out", f"{seen:g} s in Ray; {ours}")
    judge = failure if seen < QUEUE_TIMEOUT / 4 else warning
    return judge(
        "start time-out",
        f"{seen:g} s in Ray, which fails waiting jobs before we would; {ours}",
        f"Set {VARIABLE} on the head to more than {QUEUE_TIMEOUT:g}, or `queue_timeout` below {seen:g}.",
    )
