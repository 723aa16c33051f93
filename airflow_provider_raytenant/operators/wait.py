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

from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.adoption import adoptable
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import JobNotFoundError, JobStoppedError
from airflow_provider_raytenant.hooks import log_settings
from airflow_provider_raytenant.hooks.ray import RayHook
from airflow_provider_raytenant.hooks.secrets import look_up
from airflow_provider_raytenant.operators.held import HeldJob
from airflow_provider_raytenant.operators.prepare import Prepared, prepare, through_outages
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.shared import shared_cluster
from airflow_provider_raytenant.ray_api.stopping import SUBMIT_SETTLES, stop_job
from airflow_provider_raytenant.ray_api.use_watch import UseTold
from airflow_provider_raytenant.ray_api.watch import JobWatch, LogCopy
from airflow_provider_raytenant.storage.grants import JobGrant

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_raytenant.operators.job import RayTenantJobOperator


@dataclass(frozen=True)
class WaitedJob:
    """The job that a worker waits for, and where it runs."""

    endpoint: RayEndpoint
    submission_id: str
    access: Access | None = None


def run_here(operator: RayTenantJobOperator, context: Context) -> Outcome:
    """Submit, or go on with the job of a try whose worker died, and wait in this process.

    :raises TerminalError, RetryableError: as :func:`prepare`, and what Ray says of the submit.
    """
    note = HeldJob(context, operator.log)
    left_behind = _left_behind(operator, note)
    prepared = prepare(operator, context, keep=left_behind)
    name = left_behind or prepared.submission_id
    access = replace(prepared.access, submission_id=name) if prepared.access else None
    prepared = replace(prepared, access=access)
    operator.wait_for(WaitedJob(prepared.endpoint, name, access))
    if operator.killed:
        raise JobStoppedError("the task was killed before its job was submitted")
    try:
        outcome = asyncio.run(_watch(prepared, left_behind, operator.log))
    except AirflowTaskTimeout:
        # Airflow stops the job, and the next try is to run it anew even if the stop does not succeed.
        note.forget()
        raise
    # The end has been seen: whatever fails from here on, the next try is to run the job anew.
    note.forget()
    return outcome


def stop_here(job: WaitedJob, log: Any) -> None:
    """Stop the job from ``on_kill`` of a worker."""

    async def stop() -> bool:
        async with RayClient(job.endpoint) as client:
            ended = await stop_job(client, job.submission_id, settle=SUBMIT_SETTLES)
        if job.access is not None:
            await _grant(job.access, log, 0.0).withdraw()
        return ended

    # Airflow calls `on_kill` in a signal handler: this thread's event loop is in the middle of `run_here`.
    with ThreadPoolExecutor(1) as apart:
        ended = apart.submit(asyncio.run, stop()).result()
    log.info("Job %s %s", job.submission_id, "has ended." if ended else "was told to stop, but still lives.")


def _left_behind(operator: RayTenantJobOperator, note: HeldJob) -> str | None:
    """The job that a worker which died has left, if this try may go on with it."""
    submission_id = adoptable(note.read(), note.marks)
    if submission_id is None:
        return None
    # At once: should this try end in an outage, the next one is to find the job, too.
    note.write(submission_id)
    endpoint = RayHook(operator.sizing.view.cluster.ray_conn_id).endpoint()
    operator.wait_for(WaitedJob(endpoint, submission_id))
    job = through_outages(lambda: _look(endpoint, submission_id), operator.outage_budget)
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


def _grant(access: Access, log: Any, patience: float) -> JobGrant:
    return JobGrant(access, lambda: look_up(access.secrets), lambda text: log.info("%s", text), patience)


async def _watch(prepared: Prepared, left_behind: str | None, log: Any) -> Outcome:
    name = left_behind or prepared.submission_id
    grant = None
    if prepared.access is not None:
        grant = _grant(prepared.access, log, prepared.settings.limits.outage_budget)
    # Airflow itself keeps `execution_timeout` here, by an alarm in this process.
    settings = replace(prepared.settings, prepared_at=0.0)
    async with shared_cluster(prepared.endpoint) as cluster:
        watch = JobWatch(
            cluster,
            prepared.request,
            settings,
            emit=lambda line: log.info("%s", line),
            note=lambda text: log.info("%s", text),
            log=LogCopy(log_settings.max_bytes(), prepared.endpoint.job_page(name)),
            adopt=left_behind,
            claim=grant.issue if grant else None,
            use=UseTold(lambda text: log.warning("%s", text)),
        )
        return await (watch.run() if grant is None else grant.while_it_runs(watch.run()))
