"""One job from submit to end: what the trigger does, and the worker where a task is not deferred.

The submit goes by the try's own id, so it can be repeated: whoever comes second finds the job of the
first. Being cancelled leaves the job alone; stopping it is a decision of its own (:func:`stop_job`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.domain.outcome import Outcome, outcome_of
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobLostError,
    JobNotFoundError,
    JobTimeoutError,
    PackageLostError,
    RayAuthError,
    RayRequestError,
    RayUnavailableError,
)
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.log_follower import LogFollower
from airflow_provider_raytenant.ray_api.packages import runner_package
from airflow_provider_raytenant.ray_api.stopping import stop_job
from airflow_provider_raytenant.runner.end_record import strip_end_record

OUTAGE_BUDGET: Final = 600.0
"""Seconds of a dashboard without sound answers after which the wait is given up (retryable)."""

TIMEOUT_GRACE: Final = 60.0
"""Seconds that the runner has for keeping ``job_timeout`` itself before the job is stopped from here."""

_FIRST_POLL: Final = 0.5
_T = TypeVar("_T")


@dataclass(frozen=True)
class WatchSettings:
    """How to watch: ``poll_interval`` and the deadlines in seconds; no ``job_timeout`` is no deadline."""

    poll_interval: float = 5.0
    job_timeout: float | None = None
    outage_budget: float = OUTAGE_BUDGET


class JobWatch:
    """Submits one request and follows its job to the end.

    :param client: an open client.
    :param request: the body of the submit, with the try's ``submission_id``.
    :param emit: gets each line of the job's output.
    :param note: gets what happens: status changes, outages.
    """

    def __init__(
        self,
        client: RayClient,
        request: dict[str, Any],
        settings: WatchSettings,
        emit: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._client = client
        self._request = request
        self._settings = settings
        self._note = note
        self._submission_id: str = request["submission_id"]
        self._follower = LogFollower(client, self._submission_id, emit, note)

    async def run(self) -> Outcome:
        """Submit, or adopt what is there, and wait for the end.

        :raises RayUnavailableError: the dashboard gave no sound answer for the whole outage budget.
        :raises RayAuthError, RayRequestError: Ray refused the request.
        :raises PackageLostError: the job's code left the cluster before the submit.
        """
        created = await self._through_outages(self._submit)
        self._note(f"Job {self._submission_id} {'submitted' if created else 'found, following it'}.")
        self._follower.start()
        try:
            job = await self._until_ended()
            if job is not None:
                await self._follower.finish(job.driver_node_id)
        finally:
            await self._follower.cancel()
        if job is None:
            text = f"Ray no longer knows job {self._submission_id}; was its head restarted?"
            return Outcome(self._submission_id, error=JobLostError(text))
        job = replace(job, message=strip_end_record(job.message))
        return outcome_of(job, self._follower.record)

    async def _submit(self) -> bool:
        if not await self._pin_packages():
            return False
        return await self._client.submit(self._request)

    async def _pin_packages(self) -> bool:
        """See that the job's packages are on the cluster and stay there until it starts.

        ``False`` when one is missing, but the job is there already.
        """
        env = self._request.get("runtime_env", {})
        tenant = self._request.get("metadata", {}).get(METADATA_PREFIX + "tenant", "")
        for uri in (env.get("working_dir", ""), *env.get("py_modules", [])):
            if not uri.startswith("gcs://") or await self._client.has_package(uri):
                continue
            runner = runner_package(tenant)
            if uri == runner.uri:
                await self._client.put_package(uri, runner.content)
            elif await self._is_known():
                return False
            else:
                raise PackageLostError(
                    f"package {uri} of job {self._submission_id} is no longer on the cluster"
                )
        return True

    async def _is_known(self) -> bool:
        try:
            await self._client.job(self._submission_id)
        except JobNotFoundError:
            return False
        return True

    async def _until_ended(self) -> JobInfo | None:
        """The job's last record; ``None`` when Ray no longer knows the job."""
        started = time.monotonic()
        running_since: float | None = None
        status: JobStatus | None = None
        while True:
            try:
                job = await self._through_outages(self._look)
            except JobNotFoundError:
                return None
            now = time.monotonic()
            if job.status is not status:
                status = job.status
                self._note(f"Job {self._submission_id} is {status.value}{_about(job)}.")
            if status.is_terminal:
                return job
            if status is JobStatus.RUNNING and running_since is None:
                running_since = now
            await self._keep_deadline(running_since, now)
            await asyncio.sleep(self._delay(now - started))

    async def _look(self) -> JobInfo:
        try:
            return await self._client.job(self._submission_id)
        except (RayAuthError, RayRequestError) as error:
            # The job was there: a proxy has lost the dashboard, or a token is being changed. To fail now
            # would leave a running job behind, so it counts as an outage.
            raise RayUnavailableError(str(error)) from error

    async def _keep_deadline(self, running_since: float | None, now: float) -> None:
        limit = self._settings.job_timeout
        if limit is None or running_since is None or now - running_since < limit + TIMEOUT_GRACE:
            return
        self._note(f"Job {self._submission_id} runs past its job_timeout of {limit:g} s; stopping it.")
        ended = await stop_job(self._client, self._submission_id)
        told = "was stopped" if ended else "was told to stop, but still lives"
        raise JobTimeoutError(
            f"ran longer than its job_timeout of {limit:g} s and {told} (job {self._submission_id})",
            job_timeout=limit,
        )

    def _delay(self, age: float) -> float:
        """Seconds to the next poll: short for a young job, at most the interval, a tenth of jitter."""
        wait = min(self._settings.poll_interval, max(_FIRST_POLL, age / 10))
        return wait * random.uniform(0.9, 1.1)

    async def _through_outages(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat ``call`` while the dashboard gives no sound answer, up to the outage budget."""
        since: float | None = None
        while True:
            try:
                answer = await call()
            except JobNotFoundError:
                raise
            except RayUnavailableError as error:
                now = time.monotonic()
                if since is None:
                    since = now
                    self._note(
                        f"{error}. Trying for {self._settings.outage_budget:g} s; the job is not affected."
                    )
                if now - since > self._settings.outage_budget:
                    raise
                await asyncio.sleep(min(10.0, 1 + (now - since) / 4) * random.uniform(0.9, 1.1))
            else:
                if since is not None:
                    self._note("Ray answers again.")
                return answer


def _about(job: JobInfo) -> str:
    return (
        f" on node {job.driver_node_id[:12]}"
        if job.status is JobStatus.RUNNING and job.driver_node_id
        else ""
    )
