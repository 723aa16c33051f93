"""How the trigger ends its task, by what became of the job; and when it leaves a job alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent, TriggerEvent

from airflow_provider_raytenant.domain.outcome import FAILURE_KEY, Outcome
from airflow_provider_raytenant.exceptions import JobFailedError, JobResultError, RayUnavailableError
from airflow_provider_raytenant.triggers import job as module
from airflow_provider_raytenant.triggers.job import RayTenantJobTrigger

IDENTITY = {
    "tenant": "acme",
    "dag_id": "d",
    "run_id": "r",
    "task_id": "t",
    "map_index": "-1",
    "try_number": "1",
}
REQUEST = {
    "submission_id": "acme-d-t-try1-0a",
    "metadata": {f"raytenant.{k}": v for k, v in IDENTITY.items()},
}


def trigger(**changes: Any) -> RayTenantJobTrigger:
    arguments: dict[str, Any] = {
        "ray_conn_id": "ray_shared",
        "request": REQUEST,
        "poll_interval": 1.0,
        "job_timeout": None,
        "resume_on_worker": False,
        "retries_left": False,
        "push_result": True,
    }
    made = RayTenantJobTrigger(**{**arguments, **changes})
    made._task_instance = SimpleNamespace(task_id="t")
    return made


class Bench:
    """A trigger whose job ends as told, with the XComs that it sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.xcoms: dict[str, Any] = {}
        self.outcome: Outcome | Exception = Outcome("id")
        monkeypatch.setattr(module, "RESUME_NOT_BEFORE", 0.0)
        bench = self

        async def aset(key: str, value: Any, **where: Any) -> None:
            assert where == {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1}
            bench.xcoms[key] = value

        class Watch:
            def __init__(self, *arguments: Any) -> None: ...

            async def run(self) -> Outcome:
                if isinstance(bench.outcome, Exception):
                    raise bench.outcome
                return bench.outcome

        async def endpoint(self: Any) -> Any:
            return SimpleNamespace(ssl=lambda: True, request_headers=dict)

        monkeypatch.setattr(module.XCom, "aset", aset)
        monkeypatch.setattr(module, "JobWatch", Watch)
        monkeypatch.setattr(module.RayHook, "aendpoint", endpoint)

    async def event(self, made: RayTenantJobTrigger) -> TriggerEvent:
        events = [event async for event in made.run()]
        assert len(events) == 1
        return events[0]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_its_arguments_survive_the_way_through_the_database() -> None:
    path, arguments = trigger(job_timeout=5.0).serialize()
    assert path == f"{RayTenantJobTrigger.__module__}.RayTenantJobTrigger"
    assert RayTenantJobTrigger(**arguments).serialize() == (path, arguments)


async def test_success_ends_the_task_and_sets_the_result_beforehand(bench: Bench) -> None:
    bench.outcome = Outcome("id", result={"rows": 3})
    assert isinstance(await bench.event(trigger()), TaskSuccessEvent)
    assert bench.xcoms == {"return_value": {"rows": 3}}


@pytest.mark.parametrize(("result", "push"), [(None, True), ({"rows": 3}, False)])
async def test_no_xcom_where_there_is_no_result_or_none_is_wanted(
    bench: Bench, result: Any, push: bool
) -> None:
    bench.outcome = Outcome("id", result=result)
    assert isinstance(await bench.event(trigger(push_result=push)), TaskSuccessEvent)
    assert bench.xcoms == {}


@pytest.mark.parametrize("retries_left", [True, False])
async def test_a_failure_that_a_retry_may_mend_ends_the_task(bench: Bench, retries_left: bool) -> None:
    bench.outcome = Outcome("id", error=JobFailedError("exit code 3", exit_code=3))
    assert isinstance(await bench.event(trigger(retries_left=retries_left)), TaskFailedEvent)
    assert bench.xcoms[FAILURE_KEY]["exit_code"] == 3


async def test_a_failure_that_no_retry_can_mend_goes_to_a_worker_while_retries_are_left(bench: Bench) -> None:
    bench.outcome = Outcome("id", error=JobResultError("too large"))
    event = await bench.event(trigger(retries_left=True))
    assert type(event) is TriggerEvent
    assert Outcome.from_json(event.payload).retryable is False
    assert isinstance(await bench.event(trigger(retries_left=False)), TaskFailedEvent)


async def test_a_task_that_needs_a_worker_gets_the_whole_outcome(bench: Bench) -> None:
    bench.outcome = Outcome("id", result=[1, 2])
    event = await bench.event(trigger(resume_on_worker=True))
    assert type(event) is TriggerEvent
    assert Outcome.from_json(event.payload).result == [1, 2]
    assert bench.xcoms == {}


async def test_a_resumed_task_is_not_sent_to_a_worker_too_early(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(module, "RESUME_NOT_BEFORE", 10.0)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await bench.event(trigger(resume_on_worker=True))
    assert [round(wait) for wait in waits] == [10]


async def test_without_a_task_instance_as_in_dag_test_the_outcome_is_handed_on(bench: Bench) -> None:
    bench.outcome = Outcome("id", error=JobFailedError("exit code 3"))
    inline = trigger()
    inline._task_instance = None
    event = await bench.event(inline)
    assert type(event) is TriggerEvent
    assert isinstance(Outcome.from_json(event.payload).error, JobFailedError)


async def test_xcoms_that_cannot_be_set_are_left_to_a_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: Any, **where: Any) -> None:
        raise ConnectionError("the API server is away")

    monkeypatch.setattr(module.XCom, "aset", broken)
    bench.outcome = Outcome("id", result=7)
    event = await bench.event(trigger())
    assert type(event) is TriggerEvent
    assert Outcome.from_json(event.payload).result == 7


@pytest.mark.parametrize("error", [RayUnavailableError("gone"), ZeroDivisionError("a bug")])
async def test_nothing_escapes_the_trigger(bench: Bench, error: Exception) -> None:
    bench.outcome = error
    assert isinstance(await bench.event(trigger()), TaskFailedEvent)
    assert bench.xcoms[FAILURE_KEY]["retryable"] is True


@pytest.mark.parametrize(("state", "stops"), [("deferred", False), ("failed", True), (None, True)])
async def test_a_kill_stops_the_job_unless_the_task_is_still_deferred(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, state: str | None, stops: bool
) -> None:
    stopped: list[str] = []

    async def stop(client: Any, submission_id: str, **limits: float) -> bool:
        stopped.append(submission_id)
        return True

    async def now(self: Any) -> str | None:
        return state

    monkeypatch.setattr(module, "stop_job", stop)
    monkeypatch.setattr(RayTenantJobTrigger, "_task_state", now)
    await trigger().on_kill()
    assert stopped == ([REQUEST["submission_id"]] if stops else [])


async def test_a_stop_goes_on_when_airflow_cancels_on_kill_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stop(client: Any, submission_id: str, **limits: float) -> bool:
        stopped.set()
        return True

    async def slow(self: Any) -> str | None:
        asked.set()
        await answered.wait()
        return "failed"

    monkeypatch.setattr(module, "stop_job", stop)
    monkeypatch.setattr(RayTenantJobTrigger, "_task_state", slow)
    kill = asyncio.create_task(trigger().on_kill())
    await asyncio.wait_for(asked.wait(), 5)
    kill.cancel()
    with pytest.raises(asyncio.CancelledError):
        await kill
    assert not stopped.is_set()
    answered.set()
    await asyncio.wait_for(stopped.wait(), 5)
