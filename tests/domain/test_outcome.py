from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from airflow_provider_raytenant import exceptions
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.outcome import Outcome, outcome_of
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobFailedError,
    JobKilledError,
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
    ("error_type", "kind", "retryable", "text", "more"),
    [
        (
            "RUNTIME_ENV_SETUP_FAILURE",
            exceptions.JobSetupError,
            True,
            "Ray could not set up the runtime environment",
            {},
        ),
        (
            "JOB_SUPERVISOR_ACTOR_START_FAILURE",
            exceptions.JobSetupError,
            True,
            "Ray could not start the job this time",
            {},
        ),
        (
            "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
            JobStartTimeoutError,
            True,
            "Ray found no room for the job in time",
            {"deadline": "ray_start_timeout"},
        ),
        (
            "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
            JobStartTimeoutError,
            True,
            "Ray could not place the job",
            {"deadline": "ray_start_timeout"},
        ),
        (
            "JOB_SUPERVISOR_ACTOR_DIED",
            JobLostError,
            True,
            "the job's supervisor died",
            {"lost": "supervisor"},
        ),
        (
            "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE",
            JobLostError,
            True,
            "the job's supervisor failed",
            {"lost": "supervisor"},
        ),
        (
            "JOB_ENTRYPOINT_COMMAND_START_ERROR",
            JobFailedError,
            True,
            "the job failed without an exit code",
            {},
        ),
        ("A_TYPE_OF_A_LATER_RAY", JobFailedError, True, "the job failed without an exit code", {}),
    ],
)
def test_each_error_type_of_ray_has_its_class(
    error_type: str, kind: type, retryable: bool, text: str, more: dict[str, Any]
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
        **more,
    }


@pytest.mark.parametrize(
    ("exit_code", "text", "killed_by"),
    [
        (1, "the entrypoint failed with exit code 1", None),
        (3, "the entrypoint failed with exit code 3", None),
        (127, "the entrypoint failed with exit code 127", None),
        (143, "the entrypoint failed with exit code 143", None),
        (255, "the entrypoint failed with exit code 255", None),
        (137, "the entrypoint was killed by SIGKILL; often the node ran out of memory", "SIGKILL"),
        (-9, "the entrypoint was killed by SIGKILL; often the node ran out of memory", "SIGKILL"),
        (-15, "the entrypoint was killed by SIGTERM", "SIGTERM"),
        (-11, "the entrypoint was killed by SIGSEGV", "SIGSEGV"),
        (-99, "the entrypoint was killed by signal 99", "99"),
        (None, "the job failed without an exit code", None),
    ],
)
def test_an_exit_code_or_signal_is_told(exit_code: int | None, text: str, killed_by: str | None) -> None:
    outcome = outcome_of(_job(exit_code=exit_code), None)
    assert type(outcome.error) is (JobKilledError if killed_by else JobFailedError)
    assert outcome.retryable
    assert str(outcome.error) == f"{text} (job acme-1)"
    assert outcome.error.details["exit_code"] == exit_code
    assert outcome.error.details.get("signal") == killed_by


def test_a_request_that_ray_can_make_nothing_of_is_not_worth_a_retry() -> None:
    said = "Failed to start supervisor actor j: 'nope'. Full traceback:\nValueError: nope"
    outcome = outcome_of(_job(error_type="JOB_SUPERVISOR_ACTOR_START_FAILURE", message=said), None)
    assert type(outcome.error) is RuntimeEnvError
    assert not outcome.retryable


def test_an_index_that_is_away_is_worth_a_retry_though_pip_then_finds_nothing() -> None:
    said = """WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError'
ERROR: Could not find a version that satisfies the requirement polars==1.0 (from versions: none)
ERROR: No matching distribution found for polars==1.0"""
    outcome = outcome_of(_job(error_type="RUNTIME_ENV_SETUP_FAILURE", message=said), None)
    assert type(outcome.error) is exceptions.JobSetupError
    assert outcome.retryable


OOM = "Task was killed due to the node running low on memory."


def test_a_supervisor_that_rays_memory_monitor_killed_was_killed() -> None:
    outcome = outcome_of(_job(error_type="JOB_SUPERVISOR_ACTOR_DIED", message=f"died: {OOM}"), None)
    assert type(outcome.error) is JobKilledError
    assert outcome.retryable
    assert outcome.error.details["out_of_memory"] is True


def test_an_entrypoint_that_failed_for_want_of_memory_says_so() -> None:
    outcome = outcome_of(_job(exit_code=1, message=f"ray.exceptions.OutOfMemoryError: {OOM}"), None)
    assert type(outcome.error) is JobFailedError
    assert "its output speaks of a lack of memory" in str(outcome.error)
    assert outcome.error.details["out_of_memory"] is True


def test_a_supervisor_that_is_gone_is_no_bad_request() -> None:
    """Ray gives both the same error type."""
    said = "Unexpected error occurred: failed to get job supervisor."
    outcome = outcome_of(_job(error_type="JOB_SUPERVISOR_ACTOR_START_FAILURE", message=said), None)
    assert type(outcome.error) is JobLostError
    assert outcome.retryable


def test_a_job_without_its_ticket_was_stopped_before_it_started() -> None:
    outcome = outcome_of(_job(exit_code=77), {"outcome": "no_ticket", "exit_code": 77})
    assert type(outcome.error) is JobStoppedError
    assert "its entrypoint did not run" in str(outcome.error)


@pytest.mark.parametrize(
    ("record", "skips"),
    [
        ({"outcome": "exited", "exit_code": 99}, True),
        ({"outcome": "exited", "exit_code": 99, "result_error": {"message": "x"}}, False),
        ({"outcome": "not_started", "exit_code": 99}, False),
        (None, False),
    ],
)
def test_an_exit_code_of_the_entrypoint_may_skip_the_task(record: dict[str, Any] | None, skips: bool) -> None:
    outcome = outcome_of(_job(exit_code=99), record, skip_on=(99,))
    assert outcome.skipped is skips
    assert (outcome.error is None) is skips
    assert outcome_of(_job(exit_code=99), record).error is not None
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))).skipped is skips


def test_of_a_long_message_the_end_is_shown_and_the_whole_kept() -> None:
    message = "\n".join(["Traceback", *(f"line {n}" for n in range(100)), "ERROR: it was pip"])
    outcome = outcome_of(_job(error_type="RUNTIME_ENV_SETUP_FAILURE", message=message), None)
    assert outcome.error is not None
    shown = str(outcome.error).splitlines()
    assert len(shown) < 20
    assert shown[-1] == "ERROR: it was pip"
    assert outcome.error.details["ray_message"] == message


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
    assert outcome.error.details["deadline"] == "job_timeout"
    record = {"outcome": "job_timeout", "seconds": 5.2}
    outcome = outcome_of(_job(status, exit_code=124), record, deadline=("execution_timeout", 5))
    assert outcome.error is not None
    assert "its execution_timeout" in str(outcome.error)
    assert outcome.error.details["deadline"] == "execution_timeout"


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
    assert str(outcome.error) == "the job was stopped, and not by its task (job acme-1)"


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"outcome": "job_timeout", "seconds": "long"}, JobTimeoutError),
        ({"outcome": "job_timeout", "seconds": None}, JobTimeoutError),
        ({"outcome": "job_timeout", "seconds": 10**400}, JobTimeoutError),
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


@pytest.mark.parametrize("seconds", [0, 0.0, 2, 1.234])
@pytest.mark.parametrize("ending", ["exited", "signaled", "job_timeout"])
@pytest.mark.parametrize(("status", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("STOPPED", None)])
def test_how_long_the_entrypoint_ran_is_known_however_it_ended(
    seconds: float, ending: str, status: str, code: int | None
) -> None:
    outcome = outcome_of(_job(status, exit_code=code), {"outcome": ending, "seconds": seconds})
    assert outcome.usage == {"run_seconds": float(seconds)}


def test_a_job_that_was_skipped_by_its_exit_code_ran_as_well() -> None:
    record = {"outcome": "exited", "seconds": 0.2}
    outcome = outcome_of(_job(exit_code=99), record, skip_on=[99])
    assert outcome == Outcome("acme-1", skipped=True, usage={"run_seconds": 0.2})


@pytest.mark.parametrize(
    "record",
    [
        None,
        {"outcome": "exited"},
        {"outcome": "not_started", "seconds": 0.0},
        {"outcome": "no_ticket", "seconds": 0.0},
        {"outcome": ["exited"], "seconds": 1.0},
        *({"outcome": "exited", "seconds": made_up} for made_up in ("1", None, -1.0, nan, inf, 10**400)),
    ],
)
@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_a_record_that_does_not_say_how_long_is_read_all_the_same(
    record: dict[str, Any] | None, status: str
) -> None:
    assert outcome_of(_job(status, exit_code=1), record).usage is None


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("a"),
        Outcome("a", {"rows": [1, None]}),
        Outcome("a", usage={"peak": {"cpus": 1}}),
        Outcome("a", error=exceptions.RetryableError("x"), usage={"peak": {"cpus": 1}}),
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
    assert back.usage == outcome.usage
    assert type(back.error) is type(outcome.error)
    if isinstance(outcome.error, RayTenantError) and back.error is not None:
        assert (str(back.error), back.error.details) == (str(outcome.error), outcome.error.details)
