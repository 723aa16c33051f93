"""The trigger that submits a job, follows it and ends its task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.execution_time.xcom import XCom
from airflow.triggers.base import BaseTrigger, TaskFailedEvent, TaskSuccessEvent, TriggerEvent

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.domain.outcome import FAILURE_KEY, Outcome
from airflow_provider_raytenant.exceptions import RayTenantError, RetryableError
from airflow_provider_raytenant.hooks.ray import RayHook
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.stopping import stop_job
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings

RESUME_NOT_BEFORE: Final = 10.0
"""Seconds before which a task is not sent back to a worker. The supervisor of the deferring process can
linger for 5 s; a task that is queued again meanwhile is failed by the scheduler
(apache/airflow 67287, 72716; measured on 3.3.2)."""


SUBMIT_SETTLES: Final = 5.0
"""Seconds in which a submit that was cut off may still arrive at Ray: so long a job that Ray does not know
is looked for again before it counts as never submitted."""

_STOPS: Final[set[asyncio.Task[None]]] = set()
"""Stops under way; without this reference the event loop might forget them."""


class RayTenantJobTrigger(BaseTrigger):
    """Submits the request that ``execute`` prepared, by its computed id, and follows the job.

    Nothing in its arguments is secret: Airflow stores them in plain text.

    :param ray_conn_id: the cluster's connection, ``"ray_shared"``.
    :param request: the body of Ray's submit, with the try's ``submission_id``.
    :param poll_interval: longest time between two looks, in seconds.
    :param job_timeout: seconds that the entrypoint may run; ``None`` is no limit.
    :param resume_on_worker: end the task on a worker: it has outlets, a success callback or mails.
    :param retries_left: whether Airflow would try again; a failure that no retry can mend then needs a
        worker to say so.
    :param push_result: whether the job's result becomes an XCom.
    """

    def __init__(
        self,
        *,
        ray_conn_id: str,
        request: dict[str, Any],
        poll_interval: float,
        job_timeout: float | None,
        resume_on_worker: bool,
        retries_left: bool,
        push_result: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ray_conn_id = ray_conn_id
        self.request = request
        self.poll_interval = poll_interval
        self.job_timeout = job_timeout
        self.resume_on_worker = resume_on_worker
        self.retries_left = retries_left
        self.push_result = push_result

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, for another triggerer to go on with."""
        return (
            "airflow_provider_raytenant.triggers.job.RayTenantJobTrigger",
            {
                "ray_conn_id": self.ray_conn_id,
                "request": self.request,
                "poll_interval": self.poll_interval,
                "job_timeout": self.job_timeout,
                "resume_on_worker": self.resume_on_worker,
                "retries_left": self.retries_left,
                "push_result": self.push_result,
            },
        )

    @property
    def submission_id(self) -> str:
        """The id of the job."""
        return str(self.request["submission_id"])

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the task's end, or what ``execute_complete`` needs for it."""
        started = time.monotonic()
        outcome = await self._outcome()
        # `dag.test()` runs a trigger without a task instance, and hands its event on as it is.
        inline = self.task_instance is None
        needs_worker = self.resume_on_worker or (self.retries_left and not outcome.retryable)
        if not inline and not self.resume_on_worker:
            needs_worker = not await self._pushed(outcome) or needs_worker
        if inline or needs_worker:
            if not inline:
                await asyncio.sleep(max(0.0, RESUME_NOT_BEFORE - (time.monotonic() - started)))
            yield TriggerEvent(outcome.to_json())
        elif outcome.error is None:
            yield TaskSuccessEvent()
        else:
            self.log.error("%s", outcome.error)
            yield TaskFailedEvent()

    async def on_kill(self) -> None:
        """The user cleared the task or marked it: stop the job, and see it end.

        Airflow gives this 30 s, but cancels it again with each of its syncs, which come every second or two
        (measured on 3.3.2). So the stop is a task of its own, which goes on when this is cancelled.
        """
        stop = asyncio.create_task(self._stop_unless_deferred(), name=f"stop of {self.submission_id}")
        _STOPS.add(stop)
        stop.add_done_callback(_STOPS.discard)
        await asyncio.shield(stop)

    async def _stop_unless_deferred(self) -> None:
        """Airflow also calls a trigger killed when it gives it to another triggerer; the task is still
        deferred then, and its job belongs to the other one.
        """
        try:
            state = await self._task_state()
        except Exception:
            # Far more kills come from people than from a triggerer that lost its triggers for a while.
            self.log.warning("The task's state cannot be read; taking it for killed.", exc_info=True)
            state = None
        if state == "deferred":
            self.log.info(
                "The task is still deferred: leaving job %s to its other trigger.", self.submission_id
            )
            return
        try:
            async with RayClient(await RayHook(self.ray_conn_id).aendpoint()) as client:
                ended = await stop_job(client, self.submission_id, patience=60.0, settle=SUBMIT_SETTLES)
        except RayTenantError as error:
            self.log.warning("Job %s could not be stopped: %s", self.submission_id, error)
            return
        told = "has ended" if ended else "was told to stop, but still lives"
        self.log.info("The task is %s: job %s %s.", state or "gone", self.submission_id, told)

    async def _outcome(self) -> Outcome:
        try:
            async with RayClient(await RayHook(self.ray_conn_id).aendpoint()) as client:
                settings = WatchSettings(self.poll_interval, self.job_timeout)
                return await JobWatch(client, self.request, settings, self._say, self._say).run()
        except RayTenantError as error:
            return Outcome(self.submission_id, error=error)
        except Exception as error:
            # A trigger that raises fails its task without a word of ours and without stopping the job.
            self.log.exception("The trigger met something that it does not know.")
            return Outcome(
                self.submission_id, error=RetryableError(f"unexpected {type(error).__name__}: {error}")
            )

    def _say(self, text: str) -> None:
        self.log.info("%s", text)

    async def _pushed(self, outcome: Outcome) -> bool:
        """Whether the XComs are set; if not, the worker that gets the event sets them."""
        try:
            if outcome.error is not None:
                await self._set_xcom(FAILURE_KEY, outcome.failure())
            elif outcome.result is not None and self.push_result:
                await self._set_xcom(BaseXCom.XCOM_RETURN_KEY, outcome.result)
        except Exception:
            self.log.warning("The task's XComs cannot be set from here; a worker will do it.", exc_info=True)
            return False
        return True

    async def _set_xcom(self, key: str, value: Any) -> None:
        """Set an XCom before the end event: one that travels inside the event arrives encoded twice."""
        await XCom.aset(
            key,
            value,
            dag_id=self._identity("dag_id"),
            task_id=self._identity("task_id"),
            run_id=self._identity("run_id"),
            map_index=int(self._identity("map_index")),
        )

    async def _task_state(self) -> str | None:
        """The state of this task now; ``None`` when Airflow does not know it (any more)."""
        from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        map_index = int(self._identity("map_index"))
        task_id, run_id = self._identity("task_id"), self._identity("run_id")
        question = GetTaskStates(
            dag_id=self._identity("dag_id"),
            task_ids=[task_id],
            run_ids=[run_id],
            map_index=None if map_index < 0 else map_index,
        )
        answer = await SUPERVISOR_COMMS.asend(question)
        if not isinstance(answer, TaskStatesResult):
            return None
        key = task_id if map_index < 0 else f"{task_id}_{map_index}"
        state = answer.task_states.get(run_id, {}).get(key)
        return None if state is None else str(getattr(state, "value", state))

    def _identity(self, name: str) -> str:
        return str(self.request["metadata"][METADATA_PREFIX + name])
