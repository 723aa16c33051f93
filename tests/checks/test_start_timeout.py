from __future__ import annotations

import pytest

from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.checks.start_timeout import judge_start_timeout, seen_in_records
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus

MESSAGE = "Job supervisor actor failed to start within {} seconds. This timeout can be configured by ..."


def failed(
    name: str, message: str, end_time: int, error_type: str = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
) -> JobInfo:
    return JobInfo(name, JobStatus.FAILED, message, error_type, end_time=end_time)


def test_the_latest_record_that_names_it_counts() -> None:
    jobs = [failed("b", MESSAGE.format("60.0"), 20), failed("a", MESSAGE.format("900.0"), 10)]
    assert seen_in_records(jobs) == 60.0
    assert seen_in_records([*jobs, failed("c", "other words", 30)]) == 60.0


def test_what_a_job_says_of_itself_does_not_count() -> None:
    assert seen_in_records([failed("a", MESSAGE.format("1"), 1, "JOB_ENTRYPOINT_COMMAND_ERROR")]) is None
    assert seen_in_records([]) is None


@pytest.mark.parametrize(
    ("seen", "level", "words"),
    [
        (None, Level.OK, "does not tell RAY_JOB_START_TIMEOUT_SECONDS"),
        (900.0, Level.OK, "900 s in Ray"),
        (840.0, Level.WARNING, "before we would"),
        (600.0, Level.WARNING, "600 s in Ray"),
        (60.0, Level.FAILURE, "60 s in Ray"),
    ],
)
def test_ours_has_to_come_first(seen: float | None, level: Level, words: str) -> None:
    found = judge_start_timeout(seen)
    assert (found.level, words in found.found) == (level, True)
    assert "840 s" in found.found
