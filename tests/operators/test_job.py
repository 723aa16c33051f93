"""What `execute` and `execute_complete` make of an end: result, skip, failure with its XCom."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_raytenant.domain.outcome import FAILURE_KEY, Outcome
from airflow_provider_raytenant.exceptions import (
    DoesNotFitError,
    JobFailedError,
    JobResultError,
    PackageLostError,
    RayTenantError,
    RayUnavailableError,
)
from airflow_provider_raytenant.operators import prepare as prepare_module
from airflow_provider_raytenant.operators.job import RayTenantJobOperator


def operator() -> RayTenantJobOperator:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        return RayTenantJobOperator(task_id="t", tenant="acme", entrypoint="true")


class Context(dict[str, Any]):
    """A context whose task instance keeps the XComs."""

    def __init__(self) -> None:
        self.xcoms: dict[str, Any] = {}
        super().__init__(ti=SimpleNamespace(xcom_push=self.xcoms.__setitem__))


def complete(outcome: Outcome) -> tuple[Any, dict[str, Any]]:
    context = Context()
    return operator().execute_complete(context, outcome.to_json()), context.xcoms  # type: ignore[arg-type]


def test_a_result_is_returned() -> None:
    assert complete(Outcome("j", result={"rows": 3})) == ({"rows": 3}, {})


@pytest.mark.parametrize("ending", [{}, {"skipped": True}, {"error": JobFailedError("exit code 3")}])
def test_what_the_job_held_at_most_is_an_xcom_however_it_ended(ending: dict[str, Any]) -> None:
    context = Context()
    usage = {"peak": {"cpus": 4.0}, "over": None}
    with suppress(AirflowSkipException, JobFailedError):
        operator().execute_complete(context, Outcome("j", usage=usage, **ending).to_json())  # type: ignore[arg-type]
    assert context.xcoms["raytenant_usage"] == usage


def test_a_skip_skips() -> None:
    with pytest.raises(AirflowSkipException):
        complete(Outcome("j", skipped=True))


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (JobFailedError("exit code 3", exit_code=3), JobFailedError),
        (JobResultError("x"), AirflowFailException),
    ],
)
def test_a_failure_leaves_its_class_and_keeps_retries_that_cannot_help(
    error: RayTenantError, raised: type[Exception]
) -> None:
    context = Context()
    with pytest.raises(raised, match=str(error)):
        operator().execute_complete(context, Outcome("j", error=error).to_json())  # type: ignore[arg-type]
    assert context.xcoms[FAILURE_KEY]["error"] == type(error).__name__


@pytest.mark.parametrize(
    ("error", "raised"),
    [(DoesNotFitError("20 CPU"), AirflowFailException), (RayUnavailableError("away"), RayUnavailableError)],
)
def test_what_fails_before_the_submit_is_told_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, error: RayTenantError, raised: type[Exception]
) -> None:
    def fails(*arguments: Any) -> Any:
        raise error

    monkeypatch.setattr(prepare_module, "prepare", fails)
    context = Context()
    with pytest.raises(raised):
        operator().execute(context)  # type: ignore[arg-type]
    assert context.xcoms[FAILURE_KEY]["error"] == type(error).__name__
    assert context.xcoms[FAILURE_KEY]["retryable"] is (raised is RayUnavailableError)


def test_a_job_whose_packages_left_the_cluster_is_prepared_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger came more than ten minutes late; the try is still the same."""
    again: list[Any] = []
    monkeypatch.setattr(RayTenantJobOperator, "execute", lambda self, context: again.append(context))
    context = Context()
    event = Outcome("j", error=PackageLostError("gone")).to_json()
    operator().execute_complete(context, event)  # type: ignore[arg-type]
    assert again == [context]
    assert context.xcoms == {}


@pytest.mark.parametrize(("event", "fails"), [("success", False), ("failed", True)])
def test_a_plain_text_event_is_understood(event: str, fails: bool) -> None:
    """What ``dag.test()`` makes of an end event."""
    if fails:
        with pytest.raises(JobFailedError):
            operator().execute_complete(Context(), event)  # type: ignore[arg-type]
    else:
        assert operator().execute_complete(Context(), event) is None  # type: ignore[arg-type]
