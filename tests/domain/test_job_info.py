from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus

RECORD: dict[str, Any] = {
    "type": "SUBMISSION",
    "submission_id": "acme-etl-load-try1-0",
    "status": "FAILED",
    "message": "Job failed",
    "error_type": "JOB_SUPERVISOR_ACTOR_DIED",
    "driver_exit_code": -9,
    "start_time": 1000,
    "end_time": 2000,
    "metadata": {"raytenant.tenant": "acme"},
    "entrypoint": "exec python",
    "driver_node_id": "n1",
    "a_key_of_a_later_ray": 1,
}


def test_a_record_of_ray_is_read_whole() -> None:
    assert JobInfo.from_ray(RECORD) == JobInfo(
        submission_id="acme-etl-load-try1-0",
        status=JobStatus.FAILED,
        message="Job failed",
        error_type="JOB_SUPERVISOR_ACTOR_DIED",
        exit_code=-9,
        start_time=1000,
        end_time=2000,
        metadata={"raytenant.tenant": "acme"},
        entrypoint="exec python",
        driver_node_id="n1",
    )


@pytest.mark.parametrize("nothing", [{}, {"message": None, "metadata": None, "entrypoint": None}])
def test_what_ray_leaves_out_is_empty(nothing: dict[str, Any]) -> None:
    job = JobInfo.from_ray({"submission_id": "a", "status": "PENDING", **nothing})
    assert job == JobInfo("a", JobStatus.PENDING)


@pytest.mark.parametrize("key", ["submission_id", "status"])
def test_a_record_without_id_or_status_is_none(key: str) -> None:
    with pytest.raises(KeyError, match=key):
        JobInfo.from_ray({k: v for k, v in RECORD.items() if k != key})


def test_a_status_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="LIMBO"):
        JobInfo.from_ray({**RECORD, "status": "LIMBO"})
