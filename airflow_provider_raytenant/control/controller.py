"""The controller: a small process beside the scheduler that keeps pools right and sweeps clusters.

Each cluster has a task of its own, so that one whose dashboard hangs holds up no other. What is asked of
the database goes through threads, for the same reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from airflow_provider_raytenant import tenant_file
from airflow_provider_raytenant.control.clusters import client_of, endpoint_of_connection
from airflow_provider_raytenant.control.health import Health
from airflow_provider_raytenant.control.notices import Notices
from airflow_provider_raytenant.control.sweeper import Sweeper
from airflow_provider_raytenant.control.threads import ask
from airflow_provider_raytenant.database import heartbeats
from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.pool_rows import Change, PlannedPool
from airflow_provider_raytenant.domain.sweep import OwnJob
from airflow_provider_raytenant.exceptions import (
    DatabaseUnavailableError,
    RayTenantError,
    TenantFileError,
)
from airflow_provider_raytenant.pools.sync import ClusterState, DagFacts, read_dags, sync_pools

SELDOM: Final = 300.0
"""Seconds between two deletions of old records, and between two looks into all DAGs."""

LONGEST_PAUSE: Final = 30.0
"""Seconds between two rounds while something is away."""

LISTING_SHARE: Final = 0.1
"""Part of a dashboard's time that lists of jobs may take: Ray gives only all records at once."""

END_WITHIN: Final = 1.0
FAREWELL_WITHIN: Final = 0.5

DATABASE: Final = "database"


@dataclass(frozen=True)
class Settings:
    """``interval`` between two rounds and ``older_than`` for records, both in seconds."""

    interval: float
    older_than: float


class Controller:
    """Keeps the pools right and sweeps the clusters of a tenant file.

    :param path: of the tenant file; it is read again when it changes.
    :param say: is told what happens, a line each.
    :raises TenantFileError: the file is wrong from the beginning.
    """

    def __init__(self, path: str, settings: Settings, say: Callable[[str], None]) -> None:
        self._path = path
        self._settings = settings
        self._say = say
        self._notices = Notices(say)
        self._stamp = _stamp(path)
        self._file = tenant_file.load(path)
        self._states: dict[str, ClusterState] = {}
        self._sweepers: dict[str, Sweeper] = {}
        self._deleted_at: dict[str, float] = {}
        self._dags: tuple[float, DagFacts] | None = None
        self._heartbeat: int | None = None
        self._health = Health()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; then end within a second or so, in the middle of whatever it is."""
        work = asyncio.create_task(self._work(), name="controller")
        waiting = asyncio.create_task(stop.wait(), name="end of the controller")
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if work.done():
            work.result()
        work.cancel()
        await asyncio.wait({work}, timeout=END_WITHIN)
        await self._farewell()

    async def once(self) -> bool:
        """One round of everything, stops seen to their end; whether all of it went well."""
        rounds = await asyncio.gather(*(self._round(name) for name in self._file.clusters))
        pools = await self._pools_round()
        stops = [await self._sweeper(name).stopped() for name in self._file.clusters]
        with suppress(RayTenantError):
            await ask(partial(heartbeats.note, heartbeats.CONTROLLER_ONCE))
        return all(rounds) and pools and all(ended for stop in stops for ended in stop.values())

    async def _work(self) -> None:
        tending: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeat(self._pools_round), name="pools")
                group.create_task(self._beat(), name="heartbeat")
                while True:
                    for name in [name for name in tending if name not in self._file.clusters]:
                        tending.pop(name).cancel()
                        self._forget(name)
                    for name in self._file.clusters:
                        if name not in tending:
                            tending[name] = group.create_task(self._tend(name), name=f"cluster {name}")
                    await asyncio.sleep(self._settings.interval)
                    self._read_file_again()
        finally:
            for sweeper in self._sweepers.values():
                sweeper.cancel()

    async def _beat(self) -> None:
        """Leave a sign of life for `airflow raytenant doctor`. That the database is away, others tell."""
        while True:
            with suppress(RayTenantError):
                self._heartbeat = await ask(partial(heartbeats.beat, self._heartbeat))
            await asyncio.sleep(heartbeats.INTERVAL)

    async def _farewell(self) -> None:
        """One that ends of its own will is not missed as one that fell silent is."""
        number = self._heartbeat
        if number is not None:
            with suppress(RayTenantError):
                await ask(lambda: heartbeats.end(number), patience=FAREWELL_WITHIN)

    async def _tend(self, name: str) -> None:
        await self._repeat(
            lambda: self._round(name), lambda: self._sweeper(name).listing_took / LISTING_SHARE
        )

    async def _repeat(
        self, call: Callable[[], Coroutine[Any, Any, bool]], at_least: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Call each interval, more seldom while it fails."""
        pause = self._settings.interval
        while True:
            begun = time.monotonic()
            well = await call()
            pause = self._settings.interval if well else min(max(LONGEST_PAUSE, pause), pause * 2)
            await asyncio.sleep(max(0.0, pause - (time.monotonic() - begun), at_least()))

    async def _round(self, name: str) -> bool:
        """Sweep a cluster and read its state; whether it went well."""
        subject, cluster = f"cluster {name}", self._file.clusters[name]
        sweeper, deployment = self._sweeper(name), self._file.deployment
        due = time.monotonic() - self._deleted_at.get(name, -SELDOM) >= SELDOM
        try:
            endpoint = await endpoint_of_connection(cluster.ray_conn_id)
            async with client_of(endpoint) as client:
                look = await sweeper.look(client, deployment, self._settings.older_than if due else None)
                sweeper.stop(endpoint, look)
                self._states[name] = ClusterState(await client.nodes(), look.uncounted)
                if due:
                    self._tell_deleted(subject, await sweeper.delete(client, look.records))
                    self._deleted_at[name] = time.monotonic()
        except RayTenantError as error:
            self._states.pop(name, None)
            known = isinstance(error, DatabaseUnavailableError) and self._notices.is_bad(DATABASE)
            if not known:
                self._notices.bad(subject, error)
            return False
        self._notices.good(subject)
        return True

    async def _pools_round(self) -> bool:
        """Make the pools what they should be, as far as clusters answer; whether it went well."""
        file, states = self._file, dict(self._states)
        try:
            dags = await self._dag_facts()
            planned = await ask(lambda: sync_pools(file, states, dags))
            await ask(partial(heartbeats.note, heartbeats.SYNC))
        except RayTenantError as error:
            self._notices.bad(DATABASE, error)
            self._health.failed()
            return False
        self._notices.good(DATABASE)
        self._health.synced(planned, len(file.clusters) - len(states))
        for pool in planned.changes:
            self._say(_change(pool))
        if set(states) == set(file.clusters):
            self._notices.standing("pools", planned.problems)
        return True

    async def _dag_facts(self) -> DagFacts:
        """Read seldom: it means reading every DAG."""
        if self._dags is None or time.monotonic() - self._dags[0] >= SELDOM:
            self._dags = (time.monotonic(), await ask(read_dags))
        return self._dags[1]

    def _read_file_again(self) -> None:
        """A wrong file is told once, and the last right one stays in force."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._file = tenant_file.load(self._path)
        except TenantFileError as error:
            self._say(f"tenant file: the one of before stays in force: {error}")
            return
        self._dags = None
        self._say(f"tenant file: read again: {len(self._file.tenants)} tenants")

    def _sweeper(self, name: str) -> Sweeper:
        if name not in self._sweepers:
            self._sweepers[name] = Sweeper(lambda text: self._say(f"cluster {name}: {text}"))
        return self._sweepers[name]

    def _forget(self, name: str) -> None:
        self._states.pop(name, None)
        self._deleted_at.pop(name, None)
        sweeper = self._sweepers.pop(name, None)
        if sweeper is not None:
            sweeper.cancel()

    def _tell_deleted(self, subject: str, deleted: Sequence[OwnJob]) -> None:
        if deleted:
            age, plural = format_duration(self._settings.older_than), "" if len(deleted) == 1 else "s"
            self._say(
                f"{subject}: deleted {len(deleted)} record{plural} of jobs that ended {age} ago or more"
            )


def _change(pool: PlannedPool) -> str:
    if pool.change is Change.DELETE:
        return f"pool {pool.name}: deleted: {pool.why}"
    before = "made with" if pool.now is None else f"{pool.now} to"
    return f"pool {pool.name}: {before} {pool.wanted} slots: {pool.why}"


def _stamp(path: str) -> tuple[int, ...] | None:
    """What changes when the file does; ``None`` while it is not there."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
