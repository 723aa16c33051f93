"""Wakes Ray's job manager after an outage.

A head that was restarted on persistent storage knows its jobs, but its job manager lives in the head's
agent and begins with the first call that reaches this: until then nobody watches the jobs, and a record
stays RUNNING though the job died (measured on Ray 2.60). Reads of jobs do not reach the agent. The stop of
a job that has ended does, and changes nothing: it answers ``stopped: false``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.listing import Listing

FIRST_PAUSE: Final = 5.0
"""Seconds to the second attempt. The dashboard answers some seconds before the agent does, and where no job
has ended there is nothing to wake it with yet."""

LONGEST_PAUSE: Final = 600.0

log = logging.getLogger(__name__)


class Waker:
    """Remembers that there was an outage until the job manager has been woken."""

    def __init__(self, client: RayClient) -> None:
        self._client = client
        self._wanted = False
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None

    def outage(self) -> None:
        """The dashboard gave no sound answer."""
        self._wanted, self._pause = True, FIRST_PAUSE
        soon = asyncio.get_running_loop().time() + FIRST_PAUSE
        self._not_before = min(self._not_before, soon)

    def answered(self, listing: Listing | None) -> None:
        """It gave one, ``listing`` if that was it: wake the job manager in the background, if it is time."""
        now = asyncio.get_running_loop().time()
        if self._wanted and self._task is None and now >= self._not_before:
            self._not_before = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._task = asyncio.create_task(self._wake(listing), name="wake of Ray's job manager")
            self._task.add_done_callback(self._done)

    async def close(self) -> None:
        """Call off what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _wake(self, listing: Listing | None) -> None:
        # Another outage while this is under way asks for another wake.
        self._wanted = False
        woken = False
        try:
            woken = await self._stop_an_ended_job(listing or await self._client.listing())
        except RayTenantError as error:
            log.debug("Ray's job manager was not woken: %s", error)
        self._wanted = self._wanted or not woken

    async def _stop_an_ended_job(self, listing: Listing) -> bool:
        job = ended_job(listing)
        if job is None:
            return False
        await self._client.stop(job.submission_id)
        log.info("Ray answers again; a stop of %s, which had ended, woke its job manager.", job.submission_id)
        return True

    def _done(self, _task: asyncio.Task[None]) -> None:
        self._task = None


def ended_job(listing: Listing) -> JobInfo | None:
    """A job that has ended; one of ours if there is one."""
    ended = [job for job in listing.jobs.values() if job.status.is_terminal]
    ours = [job for job in ended if any(key.startswith(METADATA_PREFIX) for key in job.metadata)]
    return next(iter([*ours, *ended]), None)
