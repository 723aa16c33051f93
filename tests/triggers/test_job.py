"""How the trigger ends its task, by what became of the job; and when it leaves a job alone."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from airflow_provider_raytenant.domain.lifecycle import Limits
from airflow_provider_raytenant.domain.outcome import FAILURE_KEY, Outcome
from airflow_provider_raytenant.domain.usage import OnOveruse
from airflow_provider_raytenant.exceptions import JobFailedError, JobResultError, RayUnavailableError
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.log_position import LogPosition
from airflow_provider_raytenant.ray_api.watch import WatchSettings
from airflow_provider_raytenant.triggers import job as module
from airflow_provider_raytenant.triggers import task as task_module
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
        "watch": WatchSettings(Limits(poll_interval=1.0)).to_json(),
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
        self.ended = asyncio.Event()
        self.ended.set()
        self.states: list[str | Exception | None] = ["deferred"]
        self.stopped: list[str] = []
        monkeypatch.setattr(module, "RESUME_NOT_BEFORE", 0.0)
        bench = self

        async def aset(key: str, value: Any, **where: Any) -> None:
            assert where == {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1}
            bench.xcoms[key] = value

        class Watch:
            def __init__(self, *arguments: Any, claim: Any, **more: Any) -> None:
                assert claim is None

            async def run(self) -> Outcome:
                await bench.ended.wait()
                if isinstance(bench.outcome, Exception):
                    raise bench.outcome
                return bench.outcome

        async def endpoint(self: Any) -> Any:
            return RayEndpoint("http://127.0.0.1:1")

        async def state(self: Any) -> str | None:
            found = bench.states.pop(0) if len(bench.states) > 1 else bench.states[0]
            if isinstance(found, Exception):
                raise found
            return found

        async def stop(client: Any, submission_id: str, **limits: float) -> bool:
            bench.stopped.append(submission_id)
            return True

        monkeypatch.setattr(task_module.XCom, "aset", aset)
        monkeypatch.setattr(module.OwnTask, "state", state)
        monkeypatch.setattr(module, "stop_job", stop)
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
    settings = WatchSettings(
        Limits(job_timeout=5.0), prepared_at=1.5, skip_on=(98, 99), on_overuse=OnOveruse.IGNORE
    )
    assert WatchSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    older = {name: value for name, value in settings.to_json().items() if name != "on_overuse"}
    assert WatchSettings.from_json(older).on_overuse is OnOveruse.WARN
    path, arguments = trigger(watch=settings.to_json()).serialize()
    assert path == f"{RayTenantJobTrigger.__module__}.RayTenantJobTrigger"
    assert RayTenantJobTrigger(**arguments).serialize() == (path, arguments)


async def test_success_ends_the_task_and_sets_the_result_beforehand(bench: Bench) -> None:
    bench.outcome = Outcome("id", result={"rows": 3})
    assert isinstance(await bench.event(trigger()), TaskSuccessEvent)
    assert bench.xcoms == {"return_value": {"rows": 3}}


@pytest.mark.parametrize("error", [None, JobFailedError("exit code 3")])
async def test_what_the_job_held_at_most_is_an_xcom_of_the_task(
    bench: Bench, error: JobFailedError | None
) -> None:
    usage = {"peak": {"cpus": 4.0}, "declared": {"cpus": 1}, "samples": 2, "over": "held up to 4 CPUs"}
    bench.outcome = Outcome("id", error=error, usage=usage)
    await bench.event(trigger())
    assert bench.xcoms["raytenant_usage"] == usage
    event = await bench.event(trigger(resume_on_worker=True))
    assert Outcome.from_json(event.payload).usage == usage


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
    monkeypatch.setattr(module, "RESUME_NOT_BEFORE", 0.3)
    begun = time.monotonic()
    await bench.event(trigger(resume_on_worker=True))
    assert time.monotonic() - begun >= 0.3


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

    monkeypatch.setattr(task_module.XCom, "aset", broken)
    bench.outcome = Outcome("id", result=7)
    event = await bench.event(trigger())
    assert type(event) is TriggerEvent
    assert Outcome.from_json(event.payload).result == 7


@pytest.mark.parametrize("error", [RayUnavailableError("gone"), ZeroDivisionError("a bug")])
async def test_nothing_escapes_the_trigger(bench: Bench, error: Exception) -> None:
    bench.outcome = error
    assert isinstance(await bench.event(trigger()), TaskFailedEvent)
    assert bench.xcoms[FAILURE_KEY]["retryable"] is True


async def test_a_skip_marks_the_task_skipped(bench: Bench) -> None:
    bench.outcome = Outcome("id", skipped=True)
    assert isinstance(await bench.event(trigger()), TaskSkippedEvent)
    event = await bench.event(trigger(resume_on_worker=True))
    assert type(event) is TriggerEvent
    assert Outcome.from_json(event.payload).skipped


@pytest.mark.parametrize(
    ("states", "stops"),
    [
        (["deferred"], False),
        (["failed"], True),
        ([None], True),
        ([ConnectionError("away"), "deferred"], False),
        ([ConnectionError("away")], True),
    ],
)
async def test_a_kill_stops_the_job_unless_the_task_is_still_deferred(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, states: list[Any], stops: bool
) -> None:
    monkeypatch.setattr(module, "_STATE_AGAIN", 0.0)
    bench.states = states
    await trigger().on_kill()
    assert bench.stopped == ([REQUEST["submission_id"]] if stops else [])


async def test_a_stop_goes_on_when_airflow_cancels_on_kill_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slow(self: Any) -> str | None:
        asked.set()
        await answered.wait()
        return "failed"

    monkeypatch.setattr(module.OwnTask, "state", slow)
    kill = asyncio.create_task(trigger().on_kill())
    await asyncio.wait_for(asked.wait(), 5)
    kill.cancel()
    with pytest.raises(asyncio.CancelledError):
        await kill
    assert not bench.stopped
    answered.set()
    async with asyncio.timeout(5):
        while not bench.stopped:
            await asyncio.sleep(0.01)


async def test_a_task_that_was_killed_without_a_word_has_its_job_stopped_and_no_event(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clear of a paused DAG's task leaves it without a state, and Airflow tells its trigger nothing."""
    monkeypatch.setattr(module, "OWN_LOOK_EVERY", 0.01)
    monkeypatch.setattr(module, "OWN_LOOK_AGAIN", 0.01)
    bench.ended.clear()
    bench.states = ["deferred", ConnectionError("away"), None, "deferred", None]
    running = asyncio.create_task(bench.event(trigger()))
    async with asyncio.timeout(5):
        while not bench.stopped:
            await asyncio.sleep(0.01)
    assert bench.states == [None]  # one look that says so is not enough
    bench.ended.set()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running, 0.1)


async def test_a_trigger_that_is_cancelled_leaves_the_job_and_no_task_behind(bench: Bench) -> None:
    bench.ended.clear()
    running = asyncio.create_task(bench.event(trigger()))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.stopped == []
    assert [task for task in asyncio.all_tasks() if "acme-d-t" in task.get_name()] == []


async def test_a_users_act_stops_the_job_though_airflow_never_comes_to_call_on_kill(bench: Bench) -> None:
    """Airflow 3.3.2 on a busy machine: ``run_trigger`` is cancelled anew before it has logged a line."""
    bench.ended.clear()
    bench.states = ["failed"]
    running = asyncio.create_task(bench.event(trigger()))
    await asyncio.sleep(0.01)
    running.cancel("__airflow_user_action__")
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(5):
        while not bench.stopped:
            await asyncio.sleep(0.01)


async def test_a_users_act_stops_the_job_once(bench: Bench) -> None:
    bench.ended.clear()
    bench.states = ["failed"]
    killed = trigger()
    running = asyncio.create_task(bench.event(killed))
    await asyncio.sleep(0.01)
    running.cancel("__airflow_user_action__")
    with pytest.raises(asyncio.CancelledError):
        await running
    await killed.on_kill()
    assert bench.stopped == [REQUEST["submission_id"]]


async def test_how_far_the_output_was_copied_is_an_xcom_of_the_task(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: dict[str, Any] = {}

    async def aget_one(*, key: str, **where: Any) -> Any:
        assert where == {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1}
        return stored.get(key)

    monkeypatch.setattr(task_module.XCom, "aget_one", aget_one)
    first, second = trigger(), trigger()
    assert await second._log_position() is None
    await first._save_log_position(LogPosition(4096, exact=True))
    stored.update(json.loads(json.dumps(bench.xcoms)))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(module, "_THIS_PROCESS", "another")
        third = trigger()
        assert await third._log_position() == LogPosition(4096, exact=True)
        await third._save_log_position(LogPosition(5000))
        assert bench.xcoms["raytenant_log"]["copied_from"]["another"] == 4096

    # Airflow has begun the log anew: this process copied the beginning before, and has to do so again.
    assert await second._log_position() == LogPosition(0, exact=True)

    other = trigger(request={**REQUEST, "submission_id": "acme-d-t-try2-0b"})
    assert await other._log_position() is None
    stored["raytenant_log"] = "nonsense"
    assert await second._log_position() is None


async def test_a_position_that_cannot_be_read_is_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(**where: Any) -> Any:
        raise ConnectionError("the API server is away")

    monkeypatch.setattr(task_module.XCom, "aget_one", broken)
    assert await trigger()._log_position() is None
