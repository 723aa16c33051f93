from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_raytenant import exceptions
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.outcome import Outcome, outcome_of
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobFailedError,
    JobLostError,
    JobResultError,
    JobStartTimeoutError,
    JobStoppedError,
    JobTimeoutError,
    RayTenantError,
    RuntimeEnvError,
)


def _job(status: str = "FAILED", **values: Any) -> JobInfo:
    return JobInfo("acme-1", JobStatus(status), **values)


def _text(job: JobInfo, record: dict[str, Any] | None = None) -> str:
    outcome = outcome_of(job, record)
    assert outcome.error is not None
    return str(outcome.error)


@pytest.mark.parametrize("result", [None, 0, "x", {"rows": [1, 2]}])
def test_a_job_that_succeeded_has_the_runners_result_and_no_error(result: Any) -> None:
    outcome = outcome_of(_job("SUCCEEDED"), {"outcome": "exited", "exit_code": 0, "result": result})
    assert outcome == Outcome("acme-1", result)
    assert outcome.failure() is None


def test_success_without_an_end_record_may_have_lost_its_result_and_is_worth_a_retry() -> None:
    outcome = outcome_of(_job("SUCCEEDED"), None)
    assert isinstance(outcome.error, exceptions.ResultLostError)
    assert outcome.retryable


@pytest.mark.parametrize(
    "said",
    [
        "ERROR: No matching distribution found for polars==99",
        "ERROR: ResolutionImpossible: for help visit",
        "error: Invalid requirement: '=='",
    ],
)
def test_requirements_that_nobody_can_meet_are_not_worth_a_retry(said: str) -> None:
    outcome = outcome_of(_job(error_type="RUNTIME_ENV_SETUP_FAILURE", message=said), None)
    assert isinstance(outcome.error, RuntimeEnvError)
    assert not outcome.retryable
    assert said in str(outcome.error)


def test_rays_status_stands_above_what_a_record_says() -> None:
    assert outcome_of(_job("SUCCEEDED"), {"outcome": "job_timeout"}).error is None
    assert isinstance(
        outcome_of(_job(exit_code=1), {"outcome": "exited", "exit_code": 0}).error, JobFailedError
    )


@pytest.mark.parametrize(
    ("error_type", "kind", "retryable", "text"),
    [
        (
            "RUNTIME_ENV_SETUP_FAILURE",
            exceptions.JobSetupError,
            True,
            "Ray could not set up the runtime environment",
        ),
        (
            "JOB_SUPERVISOR_ACTOR_START_FAILURE",
            RuntimeEnvError,
            False,
            "Ray could not start the job as it was asked for",
        ),
        (
            "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
            JobStartTimeoutError,
            True,
            "Ray found no room for the job in time",
        ),
        ("JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", JobStartTimeoutError, True, "Ray could not place the job"),
        ("JOB_SUPERVISOR_ACTOR_DIED", JobLostError, True, "the job's supervisor died"),
        ("JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE", JobLostError, True, "the job's supervisor failed"),
        ("JOB_ENTRYPOINT_COMMAND_START_ERROR", JobFailedError, True, "the job failed without an exit code"),
        ("A_TYPE_OF_A_LATER_RAY", JobFailedError, True, "the job failed without an exit code"),
    ],
)
def test_each_error_type_of_ray_has_its_class(
    error_type: str, kind: type, retryable: bool, text: str
) -> None:
    outcome = outcome_of(_job(error_type=error_type, message=" what Ray says\n"), None)
    assert type(outcome.error) is kind
    assert outcome.retryable is retryable
    assert str(outcome.error) == f"{text} (job acme-1, Ray says {error_type})\nwhat Ray says"
    assert outcome.failure() == {
        "error": kind.__name__,
        "message": str(outcome.error),
        "retryable": retryable,
        "submission_id": "acme-1",
        "error_type": error_type,
        "exit_code": None,
        "ray_message": " what Ray says\n",
    }


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [
        (1, "the entrypoint failed with exit code 1"),
        (3, "the entrypoint failed with exit code 3"),
        (127, "the entrypoint failed with exit code 127"),
        (143, "the entrypoint failed with exit code 143"),
        (255, "the entrypoint failed with exit code 255"),
        (137, "the entrypoint was killed by SIGKILL; often the node ran out of memory"),
        (-9, "the entrypoint was killed by SIGKILL; often the node ran out of memory"),
        (-15, "the entrypoint was killed by SIGTERM"),
        (-11, "the entrypoint was killed by SIGSEGV"),
        (-99, "the entrypoint was killed by signal 99"),
        (None, "the job failed without an exit code"),
    ],
)
def test_an_exit_code_or_signal_is_told(exit_code: int | None, text: str) -> None:
    outcome = outcome_of(_job(exit_code=exit_code), None)
    assert type(outcome.error) is JobFailedError
    assert outcome.retryable
    assert str(outcome.error) == f"{text} (job acme-1)"
    assert outcome.error.details["exit_code"] == exit_code


def test_a_message_that_only_quotes_the_output_is_left_out() -> None:
    assert _text(_job(exit_code=1, message="last lines of the log")).endswith("(job acme-1)")


def test_an_exit_code_says_more_than_rays_error_type() -> None:
    job = _job(exit_code=2, error_type="JOB_SUPERVISOR_ACTOR_DIED")
    assert type(outcome_of(job, None).error) is JobFailedError
    assert (
        _text(job)
        == "the entrypoint failed with exit code 2 (job acme-1, Ray says JOB_SUPERVISOR_ACTOR_DIED)"
    )


@pytest.mark.parametrize("status", ["FAILED", "STOPPED"])
def test_a_run_that_took_too_long_is_a_timeout(status: str) -> None:
    outcome = outcome_of(_job(status, exit_code=124), {"outcome": "job_timeout", "seconds": 61.7})
    assert type(outcome.error) is JobTimeoutError
    assert outcome.retryable
    assert str(outcome.error) == "ran longer than its job_timeout and was ended after 62 s (job acme-1)"


def test_a_result_that_cannot_become_an_xcom_is_terminal_and_keeps_its_details() -> None:
    wrong = {"kind": "too_large", "message": "result.json has 99 bytes; at most 10 are allowed", "bytes": 99}
    outcome = outcome_of(_job(exit_code=1), {"outcome": "exited", "exit_code": 0, "result_error": wrong})
    assert type(outcome.error) is JobResultError
    assert not outcome.retryable
    assert str(outcome.error) == f"the result cannot become an XCom: {wrong['message']} (job acme-1)"
    assert outcome.error.details["result_error"] == wrong


def test_a_stopped_job_was_stopped() -> None:
    outcome = outcome_of(_job("STOPPED"), {"outcome": "signaled", "signal": 15})
    assert type(outcome.error) is JobStoppedError
    assert outcome.retryable
    assert str(outcome.error) == "the job was stopped (job acme-1)"


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"outcome": "job_timeout", "seconds": "long"}, JobTimeoutError),
        ({"outcome": "job_timeout", "seconds": None}, JobTimeoutError),
        ({"result_error": "text"}, JobFailedError),
        ({"result_error": ["list"]}, JobFailedError),
        ({"result_error": {}}, JobFailedError),
        ({"outcome": ["x"]}, JobFailedError),
    ],
)
def test_a_record_that_a_job_made_up_breaks_nothing(record: dict[str, Any], kind: type) -> None:
    error = outcome_of(_job(exit_code=1), record).error
    assert type(error) is kind
    if kind is JobTimeoutError:
        assert "was ended after 0 s" in str(error)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("a"),
        Outcome("a", {"rows": [1, None]}),
        outcome_of(_job(exit_code=-9), None),
        outcome_of(_job(error_type="RUNTIME_ENV_SETUP_FAILURE", message="pip failed"), None),
        outcome_of(_job(exit_code=1), {"result_error": {"kind": "x", "message": "y"}}),
        Outcome("a", error=exceptions.RayAuthError("no token", status=401)),
        Outcome("a", error=exceptions.RetryableError("unexpected")),
    ],
)
def test_an_outcome_comes_back_from_the_triggers_event(outcome: Outcome) -> None:
    back = Outcome.from_json(json.loads(json.dumps(outcome.to_json())))
    assert (back.submission_id, back.result, back.retryable) == (
        outcome.submission_id,
        outcome.result,
        outcome.retryable,
    )
    assert back.failure() == outcome.failure()
    assert type(back.error) is type(outcome.error)
    if isinstance(outcome.error, RayTenantError) and back.error is not None:
        assert (str(back.error), back.error.details) == (str(outcome.error), outcome.error.details)
