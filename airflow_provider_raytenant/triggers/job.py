"""The trigger that submits a job, follows it and ends its task."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

from airflow.sdk.bases.xcom import BaseXCom
from airflow.triggers.base import (
    BaseTrigger,
    TaskFailedEvent,
    TaskSkippedEvent,
    TaskSuccessEvent,
    TriggerEvent,
)

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.lifecycle import outage_pause
from airflow_provider_raytenant.domain.outcome import FAILURE_KEY, Outcome
from airflow_provider_raytenant.domain.usage import USAGE_KEY
from airflow_provider_raytenant.exceptions import PackageLostError, RayTenantError, RetryableError
from airflow_provider_raytenant.hooks import log_settings
from airflow_provider_raytenant.hooks.ray import RayHook
from airflow_provider_raytenant.hooks.secrets import look_up
from airflow_provider_raytenant.links.dashboard import RayJobLink
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.log_position import LogPosition
from airflow_provider_raytenant.ray_api.shared import SharedCluster, shared_cluster
from airflow_provider_raytenant.ray_api.stopping import SUBMIT_SETTLES, stop_job
from airflow_provider_raytenant.ray_api.watch import JobWatch, LogCopy, WatchSettings
from airflow_provider_raytenant.storage.grants import JobGrant
from airflow_provider_raytenant.triggers.task import OwnTask
from airflow_provider_raytenant.triggers.usage import use_told

RESUME_NOT_BEFORE: Final = 10.0
"""Seconds before which a task is not sent back to a worker. The supervisor of the deferring process can
linger for 5 s; a task that is queued again meanwhile is failed by the scheduler
(apache/airflow 67287, 72716; measured on 3.3.2)."""

OWN_LOOK_EVERY: Final = 60.0
"""Seconds between two looks at the state of the own task. Airflow does not always tell a trigger that its
task was killed: a clear that leaves the task without a state is one case (tried on 3.3.2)."""

OWN_LOOK_AGAIN: Final = 5.0
"""Seconds after which a state that says "killed" is read once more, to be sure."""

LOG_KEY: Final = "raytenant_log"
"""The XCom in which a trigger notes how far it has copied the job's output, for the one after it."""

_THIS_PROCESS: Final = uuid.uuid4().hex[:12]
"""Tells this triggerer from the others that may have copied a job's output before."""

_STATE_AGAIN = 1.0
_LINK_KEY: Final = RayJobLink().xcom_key

_STOPS: Final[set[asyncio.Task[None]]] = set()
"""Stops under way; without this reference the event loop might forget them."""


class RayTenantJobTrigger(BaseTrigger):
    """Submits the request that ``execute`` prepared, by its computed id, and follows the job.

    Nothing in its arguments is secret: Airflow stores them in plain text.

    :param ray_conn_id: the cluster's connection, ``"ray_shared"``.
    :param request: the body of Ray's submit, with the try's ``submission_id``.
    :param watch: how to watch the job, what :meth:`WatchSettings.to_json` gives.
    :param resume_on_worker: end the task on a worker: it has outlets, a success callback or mails.
    :param retries_left: whether Airflow would try again; a failure that no retry can mend then needs a
        worker to say so.
    :param push_result: whether the job's result becomes an XCom.
    :param access: what the job is granted, by reference: what :meth:`Access.to_json` gives.
    """

    def __init__(
        self,
        *,
        ray_conn_id: str,
        request: dict[str, Any],
        watch: dict[str, Any],
        resume_on_worker: bool,
        retries_left: bool,
        push_result: bool,
        access: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ray_conn_id = ray_conn_id
        self.request = request
        self.watch = watch
        self.resume_on_worker = resume_on_worker
        self.retries_left = retries_left
        self.push_result = push_result
        self.access = access
        self._copied_from: dict[str, int] = {_THIS_PROCESS: 0}
        self._stopping: asyncio.Task[None] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, for another triggerer to go on with."""
        return (
            "airflow_provider_raytenant.triggers.job.RayTenantJobTrigger",
            {
                "ray_conn_id": self.ray_conn_id,
                "request": self.request,
                "watch": self.watch,
                "resume_on_worker": self.resume_on_worker,
                "retries_left": self.retries_left,
                "push_result": self.push_result,
                "access": self.access,
            },
        )

    @property
    def submission_id(self) -> str:
        """The id of the job."""
        return str(self.request["submission_id"])

    @property
    def own_task(self) -> OwnTask:
        """The task that this trigger works for."""
        return OwnTask.of(self.request["metadata"])

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the task's end, or what ``execute_complete`` needs for it."""
        started = time.monotonic()
        # `dag.test()` runs a trigger without a task instance, and hands its event on as it is.
        inline = self.task_instance is None
        outcome = await (self._outcome() if inline else self._outcome_unless_killed())
        # What Ray keeps for ten minutes is gone, and a worker can make it anew.
        unprepared = isinstance(outcome.error, PackageLostError)
        needs_worker = self.resume_on_worker or unprepared or (self.retries_left and not outcome.retryable)
        if not inline and not self.resume_on_worker and not unprepared:
            needs_worker = not await self._pushed(outcome) or needs_worker
        if inline or needs_worker:
            if not inline:
                await asyncio.sleep(max(0.0, RESUME_NOT_BEFORE - (time.monotonic() - started)))
            yield TriggerEvent(outcome.to_json())
        elif outcome.error is not None:
            self.log.error("%s", outcome.error)
            yield TaskFailedEvent()
        elif outcome.skipped:
            self.log.info("The entrypoint's exit code skips the task.")
            yield TaskSkippedEvent()
        else:
            yield TaskSuccessEvent()

    async def on_kill(self) -> None:
        """The user cleared the task or marked it: stop the job, and see it end.

        Airflow gives this 30 s, but cancels it again with each of its syncs, which come every second or two
        (measured on 3.3.2). So the stop is a task of its own, which goes on when this is cancelled.
        """
        await asyncio.shield(self._begin_stop())

    def _begin_stop(self) -> asyncio.Task[None]:
        """The stop of the job, begun if it has not been."""
        if self._stopping is None:
            stop = asyncio.create_task(self._stop_unless_deferred(), name=f"stop of {self.submission_id}")
            _STOPS.add(stop)
            stop.add_done_callback(_STOPS.discard)
            self._stopping = stop
        return self._stopping

    async def _stop_unless_deferred(self) -> None:
        """Airflow also calls a trigger killed when it gives it to another triggerer; the task is still
        deferred then, and its job belongs to the other one.
        """
        state: str | None = None
        for attempt in range(3):
            try:
                state = await self.own_task.state()
                break
            except Exception:
                # Far more kills come from people than from a triggerer that lost its triggers for a while.
                told = "taking it for killed" if attempt == 2 else "trying again"
                self.log.warning("The task's state cannot be read; %s.", told, exc_info=True)
                await asyncio.sleep(_STATE_AGAIN)
        if state == "deferred" and not await self._is_replaced():
            self.log.info(
                "The task is still deferred: leaving job %s to its other trigger.", self.submission_id
            )
            return
        await self._stop(state)

    async def _is_replaced(self) -> bool:
        """Whether another try of the task has deferred since: by the link to its job, which Airflow keeps.

        The task's state alone cannot tell a clear from a triggerer that gave its triggers away.
        """
        try:
            page = await self.own_task.xcom(_LINK_KEY)
        except Exception as error:
            self.log.info("Which job the task has now cannot be read (%s).", error)
            return False
        return isinstance(page, str) and page != "" and not page.endswith(f"/{self.submission_id}")

    async def _stop(self, state: str | None) -> bool:
        """Stop the job and see it end, through an outage as well; whether it has ended."""
        try:
            async with self._cluster() as cluster:
                ended = await stop_job(
                    cluster.client, self.submission_id, patience=self._budget, settle=SUBMIT_SETTLES
                )
        except Exception as error:
            self.log.warning("Job %s could not be stopped: %s", self.submission_id, error)
            return False
        grant = self._grant()
        if ended and grant is not None:
            await grant.withdraw()
        told = "has ended" if ended else "was told to stop, but still lives"
        self.log.info("The task is %s: job %s %s.", state or "gone", self.submission_id, told)
        return ended

    async def _outcome_unless_killed(self) -> Outcome:
        """The outcome; never, if the task was killed without a word: then the job is stopped."""
        outcome = asyncio.create_task(self._outcome(), name=f"watch of {self.submission_id}")
        killed = asyncio.create_task(self._killed(), name=f"state of {self.submission_id}'s task")
        try:
            await asyncio.wait([outcome, killed], return_when=asyncio.FIRST_COMPLETED)
            if not outcome.done():
                outcome.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await outcome
                while not await self._stop(killed.result()):
                    await asyncio.sleep(OWN_LOOK_AGAIN)
                # Airflow takes an event, or an end without one, for the end of a task that is not ours any
                # more, or starts this trigger anew. So it waits until it is removed.
                await asyncio.Event().wait()
            return await outcome
        except asyncio.CancelledError as cancelled:
            # Airflow cancels with a message where the user acted on the task, without one where the triggerer
            # ends. It calls on_kill only after it has written a line to the log, and never where its next
            # sync cancels again meanwhile: of 14 tasks failed at once on a busy machine, one had its
            # on_kill (3.3.2).
            if cancelled.args:
                self._begin_stop()
            raise
        finally:
            outcome.cancel()
            killed.cancel()
            await asyncio.wait([outcome, killed])

    async def _killed(self) -> str | None:
        """Return, with its state, once the task is not deferred any more."""
        while True:
            await asyncio.sleep(OWN_LOOK_EVERY * random.uniform(0.8, 1.2))
            try:
                state = await self.own_task.state()
                if state != "deferred":
                    await asyncio.sleep(OWN_LOOK_AGAIN)
                    state = await self.own_task.state()
            except Exception as error:
                self.log.info("The task's state cannot be read just now (%s).", error)
                continue
            if state != "deferred":
                return state

    async def _outcome(self) -> Outcome:
        try:
            async with self._cluster() as cluster:
                settings = WatchSettings.from_json(self.watch)
                grant = self._grant()
                own = self.own_task if self.task_instance is not None else None
                watch = JobWatch(
                    cluster,
                    self.request,
                    settings,
                    self._say,
                    self._say,
                    self._log_copy(cluster),
                    claim=grant.issue if grant else None,
                    use=use_told(own, self.submission_id, self.log),
                )
                return await (watch.run() if grant is None else grant.while_it_runs(watch.run()))
        except RayTenantError as error:
            return Outcome(self.submission_id, error=error)
        except Exception as error:
            # A trigger that raises fails its task without a word of ours and without stopping the job.
            self.log.exception("The trigger met something that it does not know.")
            return Outcome(
                self.submission_id, error=RetryableError(f"unexpected {type(error).__name__}: {error}")
            )

    def _grant(self) -> JobGrant | None:
        if self.access is None:
            return None
        access = Access.from_json(self.access)
        return JobGrant(access, lambda: look_up(access.secrets), self._say, self._budget)

    @contextlib.asynccontextmanager
    async def _cluster(self) -> AsyncIterator[SharedCluster]:
        async with shared_cluster(await self._endpoint(), live_logs=log_settings.live_logs()) as cluster:
            yield cluster

    @property
    def _budget(self) -> float:
        """Seconds for which to try on where nobody gives a sound answer."""
        return float(self.watch["limits"]["outage_budget"])

    async def _endpoint(self) -> RayEndpoint:
        """The cluster's connection. The worker has just read it, so trouble with it is taken for an outage:
        Airflow says "not found", too, where its database is away.
        """
        begun = time.monotonic()
        told = False
        while True:
            try:
                return await RayHook(self.ray_conn_id).aendpoint()
            except Exception as error:
                passed = time.monotonic() - begun
                if passed > self._budget:
                    raise
                if not told:
                    self.log.warning(
                        "Connection %s cannot be read: %s. Trying for %g s.",
                        self.ray_conn_id,
                        error,
                        self._budget,
                    )
                told = True
            await asyncio.sleep(outage_pause(passed))

    def _log_copy(self, cluster: SharedCluster) -> LogCopy:
        copy = LogCopy(
            max_bytes=log_settings.max_bytes(), rest=cluster.client.endpoint.job_page(self.submission_id)
        )
        if self.task_instance is None:
            return copy
        return replace(copy, load=self._log_position, save=self._save_log_position)

    async def _log_position(self) -> LogPosition | None:
        """How far the trigger before this one has copied the job's output."""
        try:
            saved = await self.own_task.xcom(LOG_KEY)
            position = LogPosition.from_json(saved)
            if position is None or saved.get("submission_id") != self.submission_id:
                return None
            self._copied_from = {**self._copied_from, **saved.get("copied_from", {})}
            if _THIS_PROCESS not in saved.get("copied_from", {}):
                self._copied_from[_THIS_PROCESS] = position.size
                return position
            # Airflow begins a triggerer's log of a trigger anew when the trigger comes back to it (3.3.2):
            # what this one had copied is gone.
            self.log.info("This triggerer's log was begun anew; what others copied meanwhile is repeated.")
            return LogPosition(self._copied_from[_THIS_PROCESS], exact=True)
        except Exception as error:
            self.log.info("How far the output was copied before cannot be read (%s).", error)
            return None

    async def _save_log_position(self, position: LogPosition) -> None:
        note = {"submission_id": self.submission_id, "copied_from": self._copied_from}
        await self.own_task.set_xcom(LOG_KEY, {**note, **position.to_json()})

    def _say(self, text: str) -> None:
        self.log.info("%s", text)

    async def _pushed(self, outcome: Outcome) -> bool:
        """Whether the XComs are set; if not, the worker that gets the event sets them."""
        try:
            if outcome.error is not None:
                if await self._is_replaced():
                    # Another try goes on, and what stands in the task's XComs is its. Airflow removes this
                    # trigger sooner or later; an event of it would be nobody's.
                    await asyncio.Event().wait()
                await self.own_task.set_xcom(FAILURE_KEY, outcome.failure())
            elif outcome.result is not None and self.push_result:
                await self.own_task.set_xcom(BaseXCom.XCOM_RETURN_KEY, outcome.result)
            if outcome.usage is not None:
                await self.own_task.set_xcom(USAGE_KEY, dict(outcome.usage))
        except Exception:
            self.log.warning("The task's XComs cannot be set from here; a worker will do it.", exc_info=True)
            return False
        return True
