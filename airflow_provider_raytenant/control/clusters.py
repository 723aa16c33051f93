"""The clusters of the tenant file, asked side by side: what commands need to know once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from airflow_provider_raytenant.control.sweeper import Say, Sweeper
from airflow_provider_raytenant.control.threads import ask
from airflow_provider_raytenant.database.connections import read_endpoint
from airflow_provider_raytenant.database.session import ask_database
from airflow_provider_raytenant.database.tasks import read_tasks
from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.sweep import OwnJob, TasksNow, own_jobs
from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.exceptions import (
    ConnectionConfigError,
    DatabaseUnavailableError,
    RayTenantError,
)
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint

REQUEST_TIMEOUT: Final = 10.0
REQUEST_ATTEMPTS: Final = 2

SECOND_LOOK: Final = 5.0
"""Seconds after which a task that was just cleared, or is reset by a scheduler, is scheduled again."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Answers(Generic[_T]):
    """Answers by cluster, and by cluster why there is none."""

    found: Mapping[str, _T]
    failures: Mapping[str, str]


@dataclass(frozen=True)
class ClusterJobs:
    """The jobs of one cluster: ours with their tasks, and the ids of all the others."""

    cluster: str
    endpoint: RayEndpoint
    own: tuple[OwnJob, ...]
    others: frozenset[str]
    tasks: TasksNow


@dataclass(frozen=True)
class ClusterLook:
    """The jobs of a cluster and its alive nodes; the tasks are those of live jobs."""

    jobs: ClusterJobs
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Swept:
    """What one sweep of a cluster did, or would do. ``ended`` tells of each orphan whether it has ended."""

    orphans: tuple[OwnJob, ...]
    records: tuple[OwnJob, ...]
    tasks: TasksNow
    ended: Mapping[str, bool]


def client_of(endpoint: RayEndpoint) -> RayClient:
    """A client that gives up before a person does."""
    return RayClient(endpoint, timeout=REQUEST_TIMEOUT, attempts=REQUEST_ATTEMPTS)


async def endpoint_of_connection(conn_id: str) -> RayEndpoint:
    """The endpoint of a connection, read beside the event loop.

    :raises ConnectionConfigError: there is no such connection, or it is wrong.
    :raises DatabaseUnavailableError: it cannot be read.
    """
    try:
        return await ask(lambda: read_endpoint(conn_id))
    except ConnectionConfigError:
        # Airflow also says that there is no such connection when the database is away.
        await ask(ask_database)
        raise


async def read_jobs(file: TenantFile, *, ended: bool) -> Answers[ClusterJobs]:
    """The jobs of every cluster.

    :param ended: whether the tasks of jobs that have ended are wanted as well.
    :raises DatabaseUnavailableError: Airflow's database gives no answer.
    """

    async def read(name: str, endpoint: RayEndpoint, client: RayClient) -> ClusterJobs:
        return await _jobs_of(name, endpoint, client, file.deployment, ended=ended)

    return await _each(file, read)


async def look(file: TenantFile, names: Collection[str]) -> Answers[ClusterLook]:
    """The jobs and the nodes of some of the clusters.

    :raises DatabaseUnavailableError: Airflow's database gives no answer.
    """

    async def read(name: str, endpoint: RayEndpoint, client: RayClient) -> ClusterLook:
        # Jobs before their tasks, or a job that starts in between would seem to have none.
        jobs = await _jobs_of(name, endpoint, client, file.deployment, ended=False)
        return ClusterLook(jobs, tuple(await client.nodes()))

    return await _each(file, read, names)


async def sweep(file: TenantFile, older_than: float, *, dry_run: bool, say: Say) -> Answers[Swept]:
    """Sweep every cluster once; stops are followed to their end.

    :param older_than: seconds since its end after which a job's record goes.
    :raises DatabaseUnavailableError: Airflow's database gives no answer.
    """

    async def sweep_one(_name: str, endpoint: RayEndpoint, client: RayClient) -> Swept:
        sweeper = Sweeper(say)
        try:
            look = await sweeper.look(client, file.deployment, older_than)
            if look.unclear:
                await asyncio.sleep(SECOND_LOOK)
                look = await sweeper.look(client, file.deployment, older_than)
            if dry_run:
                return Swept(look.orphans, look.records, look.tasks, {})
            sweeper.stop(endpoint, look)
            deleted = await sweeper.delete(client, look.records)
            return Swept(look.orphans, tuple(deleted), look.tasks, await sweeper.stopped())
        finally:
            sweeper.cancel()

    return await _each(file, sweep_one)


async def _jobs_of(
    name: str, endpoint: RayEndpoint, client: RayClient, deployment: str, *, ended: bool
) -> ClusterJobs:
    jobs = (await client.listing()).jobs
    own = own_jobs(jobs.values(), deployment)
    tasks = await ask(lambda: read_tasks([job for job in own if ended or job.live]))
    others = set(jobs) - {job.submission_id for job in own}
    return ClusterJobs(name, endpoint, tuple(own), frozenset(others), tasks)


async def _each(
    file: TenantFile,
    call: Callable[[str, RayEndpoint, RayClient], Awaitable[_T]],
    names: Collection[str] | None = None,
) -> Answers[_T]:
    found: dict[str, _T] = {}
    failures: dict[str, str] = {}

    async def one(name: str, conn_id: str) -> None:
        try:
            endpoint = await endpoint_of_connection(conn_id)
            async with client_of(endpoint) as client:
                found[name] = await call(name, endpoint, client)
        except DatabaseUnavailableError:
            raise
        except RayTenantError as error:
            failures[name] = str(error)

    wanted = [name for name in file.clusters if names is None or name in names]
    await asyncio.gather(*(one(name, file.clusters[name].ray_conn_id) for name in wanted))
    # In the file's order, whoever answered first.
    return Answers({name: found[name] for name in file.clusters if name in found}, failures)
