"""Stopping a job so that it stays stopped: its ticket first, then the job, then a look until it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import JobNotFoundError, RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.tickets import revoke_ticket

STOP_PATIENCE: Final = 25.0
"""Seconds for which a stop is followed. Ray itself kills a running job 3 s after it asked it to end."""

SUBMIT_SETTLES: Final = 5.0
"""Seconds in which a submit that was cut off may still arrive at Ray: so long a job that Ray does not know
is looked for again before it counts as never submitted."""

_INTERVAL: Final = 0.5


class JobStop:
    """One stop, repeated until it took effect. ``revoked``: the job's ticket has been taken away."""

    def __init__(self, client: RayClient, submission_id: str) -> None:
        self._client = client
        self._submission_id = submission_id
        self.revoked = False
        self.job: JobInfo | None = None
        """What Ray said last; ``None`` where it does not know the job."""

    @property
    def status(self) -> JobStatus | None:
        """The status by the last record; ``None`` where Ray does not know the job."""
        return None if self.job is None else self.job.status

    @property
    def cannot_start(self) -> bool:
        """Whether the job waits in Ray, and its entrypoint will never run."""
        return self.revoked and self.status is JobStatus.PENDING

    async def step(self) -> bool:
        """One attempt: ``True`` if the job has ended or Ray does not know it.

        :raises RayUnavailableError: no sound answer.
        """
        try:
            self.job = await self._client.job(self._submission_id)
        except JobNotFoundError:
            self.job = None
        if self.status is not None and self.status.is_terminal:
            return True
        if self.status is not JobStatus.RUNNING and not self.revoked:
            await revoke_ticket(self._client, self._submission_id)
            self.revoked = True
        if self.status is None:
            return True
        with contextlib.suppress(JobNotFoundError):
            await self._client.stop(self._submission_id)
        return False


async def stop_job(
    client: RayClient,
    submission_id: str,
    *,
    patience: float = STOP_PATIENCE,
    settle: float = 0.0,
    waiting: float | None = None,
) -> bool:
    """Stop a job and see it end; ``True`` once it has ended, or if Ray does not know it.

    :param patience: seconds to go on for.
    :param settle: seconds for which a job that Ray does not know is looked for again: its submit may be
        under way.
    :param waiting: seconds after which a job that still waits in Ray counts as ended too, since without its
        ticket it can start nothing. Ray takes note of its stop only when resources come free, which may
        take a quarter of an hour. Default: it is followed like any other.
    :raises RayTenantError: Ray refuses the request (a token, say).
    """
    begun = time.monotonic()
    stop = JobStop(client, submission_id)
    # Around the requests too: a dashboard that hangs takes longer for one than the patience.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while True:
                with contextlib.suppress(RayUnavailableError):
                    ended = await stop.step()
                    passed = time.monotonic() - begun
                    if ended and (stop.status or passed >= settle):
                        return True
                    if waiting is not None and stop.cannot_start and passed >= waiting:
                        return True
                # A job that waits in Ray may take a quarter of an hour to end.
                await asyncio.sleep(_INTERVAL * min(10.0, 1 + (time.monotonic() - begun) / 4))
    return False
