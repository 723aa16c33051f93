"""The sweep of one cluster: stop orphans, delete old records, never touch what is not ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from airflow_provider_raytenant.control.threads import ask
from airflow_provider_raytenant.database.tasks import read_tasks
from airflow_provider_raytenant.domain.sweep import (
    Findings,
    OwnJob,
    TasksNow,
    deletable,
    find_orphans,
    old_records,
    own_jobs,
    task_state,
    uncounted,
)
from airflow_provider_raytenant.exceptions import JobNotFoundError, RayTenantError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.stopping import stop_job

STOP_PATIENCE: Final = 25.0
"""Seconds to see a stopped job end."""

STOP_AGAIN: Final = 30.0
"""Seconds after which a job that is still there is stopped again: it does not end, or it waits in Ray for
resources, where it lost its ticket and can start nothing, but keeps its record for a quarter of an hour."""

WAITING: Final = 2.0

STOPS_AT_ONCE: Final = 8
DELETIONS_AT_ONCE: Final = 4
DELETIONS_A_SWEEP: Final = 200

Say = Callable[[str], None]


@dataclass(frozen=True)
class Look:
    """What a sweep would do, seen at one moment: Ray first, then the tasks."""

    orphans: tuple[OwnJob, ...]
    unclear: frozenset[str]
    records: tuple[OwnJob, ...]
    tasks: TasksNow
    uncounted: Mapping[str, int]
    """By pool, slots of live jobs that Airflow does not count."""


class Sweeper:
    """Sweeps one cluster, again and again.

    Stops go on beside the next looks: a job that ends slowly must not hold up the others.

    :param say: is told what happens, a line each.
    """

    def __init__(self, say: Say) -> None:
        self.listing_took = 0.0
        """Seconds that Ray took for the last list of jobs: it grows with the records."""

        self._say = say
        self._unclear: frozenset[str] = frozenset()
        self._stops: dict[str, asyncio.Task[bool]] = {}
        self._stopped_at: dict[str, float] = {}
        self._stubborn: set[str] = set()
        self._room = asyncio.Semaphore(STOPS_AT_ONCE)

    async def look(self, client: RayClient, deployment: str, older_than: float | None) -> Look:
        """Find orphans, and old records where ``older_than`` (seconds) is given.

        :raises RayTenantError: Ray or the database gave no sound answer.
        """
        begun = time.monotonic()
        jobs = own_jobs((await client.listing()).jobs.values(), deployment)
        self.listing_took = time.monotonic() - begun
        live = [job for job in jobs if job.live]
        old = []
        if older_than is not None:
            old = old_records(jobs, before=time.time() - older_than, at_most=DELETIONS_A_SWEEP)
        tasks = await ask(lambda: read_tasks([*live, *old]))
        found: Findings = find_orphans(live, tasks, self._unclear)
        self._unclear = found.unclear
        names = {job.submission_id for job in live}
        self._stubborn &= names
        self._stopped_at = {name: at for name, at in self._stopped_at.items() if name in names}
        return Look(found.orphans, found.unclear, tuple(deletable(old, tasks)), tasks, uncounted(live, tasks))

    def stop(self, endpoint: RayEndpoint, look: Look) -> None:
        """Begin to stop the orphans that are not being stopped already."""
        for name, stop in list(self._stops.items()):
            if stop.done():
                stop.result()
                del self._stops[name]
        for job in look.orphans:
            name, before = job.submission_id, self._stopped_at.get(job.submission_id)
            if name in self._stops or (before is not None and time.monotonic() - before < STOP_AGAIN):
                continue
            if before is None:
                self._say(f"stopping job {name}: its task {job.task} is {task_state(job, look.tasks)}")
            self._stops[name] = asyncio.create_task(
                self._stop(endpoint, name, first=before is None), name=f"stop of {name}"
            )

    async def stopped(self) -> dict[str, bool]:
        """Wait for the stops under way; by submission id, whether the job has ended."""
        return {name: await stop for name, stop in list(self._stops.items())}

    async def delete(self, client: RayClient, records: Iterable[OwnJob]) -> list[OwnJob]:
        """Delete records; those that this deleted.

        :raises RayTenantError: Ray gave no sound answer; the next sweep goes on.
        """
        room = asyncio.Semaphore(DELETIONS_AT_ONCE)
        gone: list[OwnJob] = []
        failures: list[RayTenantError] = []

        async def delete(job: OwnJob) -> None:
            async with room:
                if failures:
                    return
                try:
                    await client.delete(job.submission_id)
                except JobNotFoundError:
                    # Somebody else was faster.
                    return
                except RayTenantError as error:
                    failures.append(error)
                    return
            gone.append(job)

        await asyncio.gather(*(delete(job) for job in records))
        if failures:
            raise failures[0]
        return gone

    def cancel(self) -> None:
        """Leave the stops under way."""
        for stop in self._stops.values():
            stop.cancel()

    async def _stop(self, endpoint: RayEndpoint, name: str, *, first: bool) -> bool:
        reason = f"still lives {STOP_PATIENCE:g} s after it was told to stop"
        async with self._room:
            try:
                async with RayClient(endpoint) as client:
                    ended = await stop_job(client, name, patience=STOP_PATIENCE, waiting=WAITING)
            except RayTenantError as error:
                ended, reason = False, f"cannot be stopped: {error}"
        self._stopped_at[name] = time.monotonic()
        if ended and (first or name in self._stubborn):
            self._stubborn.discard(name)
            self._say(f"job {name} is stopped")
        elif not ended and name not in self._stubborn:
            self._stubborn.add(name)
            self._say(f"job {name} {reason}; it is tried again every {STOP_AGAIN:g} s")
        return ended
