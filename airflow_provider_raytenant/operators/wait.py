"""Submit and wait on the worker: what ``deferrable=False`` does.

The worker's death ends the try, not the job. So a try notes in Airflow's task state store which job it is
about to submit, and an automatic retry goes on with it. Airflow's own ResumableJobMixin does the same, but
notes the job after the submit, and cannot tell a retry from a clear.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_raytenant.domain.adoption import STORE_KEY, Marks, adoptable, held
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import JobNotFoundError
from airflow_provider_raytenant.hooks import log_settings
from airflow_provider_raytenant.hooks.ray import RayHook
from airflow_provider_raytenant.operators.prepare import Prepared, prepare
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.shared import shared_cluster
from airflow_provider_raytenant.ray_api.stopping import stop_job
from airflow_provider_raytenant.ray_api.watch import JobWatch, LogCopy

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_raytenant.operators.job import RayTenantJobOperator


@dataclass(frozen=True)
class WaitedJob:
    """The job that a worker waits for, and where it runs."""

    endpoint: RayEndpoint
    submission_id: str


def run_here(operator: RayTenantJobOperator, context: Context) -> Outcome:
    """Submit, or go on with the job of a try whose worker died, and wait in this process.

    :raises TerminalError, RetryableError: as :func:`prepare`, and what Ray says of the submit.
    """
    store, marks = _Store(context, operator.log), _marks(context)
    left_behind = _left_behind(operator, store.read(), marks)
    prepared = prepare(operator, context, keep=left_behind)
    job = WaitedJob(prepared.endpoint, left_behind or prepared.submission_id)
    # Before the submit: a worker that dies right after it must not have said nothing.
    store.write(held(job.submission_id, marks))
    operator.wait_for(job)
    outcome = asyncio.run(_watch(prepared, left_behind, operator.log))
    # The end has been seen: whatever fails from here on, the next try is to run the job anew.
    store.forget()
    return outcome


def stop_here(job: WaitedJob, log: Any) -> None:
    """Stop the job from ``on_kill`` of a worker."""

    async def stop() -> bool:
        async with RayClient(job.endpoint) as client:
            return await stop_job(client, job.submission_id)

    # Airflow calls `on_kill` in a signal handler: this thread's event loop is in the middle of `run_here`.
    with ThreadPoolExecutor(1) as apart:
        ended = apart.submit(asyncio.run, stop()).result()
    log.info("Job %s %s", job.submission_id, "has ended." if ended else "was told to stop, but still lives.")


def _left_behind(operator: RayTenantJobOperator, stored: Any, marks: Marks) -> str | None:
    """The job that a worker which died has left, if this try may go on with it."""
    submission_id = adoptable(stored, marks)
    if submission_id is None:
        return None
    endpoint = RayHook(operator.sizing.view.cluster.ray_conn_id).endpoint()
    job = asyncio.run(_look(endpoint, submission_id))
    # One that failed is what a retry is for.
    if job is None or job.status in (JobStatus.FAILED, JobStatus.STOPPED):
        return None
    operator.log.info("Going on with job %s of the try before, whose worker was lost.", submission_id)
    return submission_id


async def _look(endpoint: RayEndpoint, submission_id: str) -> JobInfo | None:
    async with RayClient(endpoint) as client:
        try:
            return await client.job(submission_id)
        except JobNotFoundError:
            return None


async def _watch(prepared: Prepared, left_behind: str | None, log: Any) -> Outcome:
    name = left_behind or prepared.submission_id
    # Airflow itself keeps `execution_timeout` here, by an alarm in this process.
    settings = replace(prepared.settings, limits=replace(prepared.settings.limits, execution_timeout=None))
    async with shared_cluster(prepared.endpoint) as cluster:
        watch = JobWatch(
            cluster,
            prepared.request,
            settings,
            emit=lambda line: log.info("%s", line),
            note=lambda text: log.info("%s", text),
            log=LogCopy(log_settings.max_bytes(), prepared.endpoint.job_page(name)),
            adopt=left_behind,
        )
        return await watch.run()


def _marks(context: Context) -> Marks:
    ti: Any = context["ti"]
    run: Any = context.get("dag_run")
    return Marks(ti.try_number, ti.max_tries or 0, getattr(run, "clear_number", None) or 0)


class _Store:
    """Airflow's task state store. Without it (under ``dag.test()``) nothing is kept, and no try adopts."""

    def __init__(self, context: Context, log: Any) -> None:
        self._store: Any = context.get("task_state_store")
        self._log = log

    def read(self) -> Any:
        return self._call("read", "get", STORE_KEY)

    def write(self, value: dict[str, Any]) -> None:
        self._call("written", "set", STORE_KEY, value)

    def forget(self) -> None:
        self._call("cleared", "delete", STORE_KEY)

    def _call(self, what: str, method: str, *arguments: Any) -> Any:
        if self._store is None:
            return None
        try:
            return getattr(self._store, method)(*arguments)
        except AirflowRuntimeError as error:
            self._log.warning("The task state store cannot be %s: %s", what, error)
            return None
