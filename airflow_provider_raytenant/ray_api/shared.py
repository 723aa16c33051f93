"""One client and one poller for all tasks of an event loop that use the same cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Final
from weakref import WeakKeyDictionary

from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.log_reads import LIVE_LOGS, LogReads
from airflow_provider_raytenant.ray_api.poller import JobPoller
from airflow_provider_raytenant.ray_api.usage import UsageSampler


@dataclass(eq=False)
class SharedCluster:
    """What the tasks of one event loop share for a cluster."""

    client: RayClient
    poller: JobPoller
    reads: LogReads = field(default_factory=LogReads)
    usage: UsageSampler = field(init=False)
    users: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.usage = UsageSampler(self.client.usage)

    async def close(self) -> None:
        """End the poller and the sampler, then the connections."""
        await self.usage.close()
        await self.poller.close()
        await self.client.close()


_Clusters = dict[Hashable, SharedCluster]

_CLUSTERS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Clusters]] = WeakKeyDictionary()
_LOCK: Final = threading.Lock()
"""Guards the dictionary of loops: several threads may each run one."""

_CLOSING: Final[set[asyncio.Task[None]]] = set()
"""Without this reference an event loop might forget what it closes."""


@asynccontextmanager
async def shared_cluster(
    endpoint: RayEndpoint, *, live_logs: int = LIVE_LOGS
) -> AsyncIterator[SharedCluster]:
    """The cluster at ``endpoint``, shared with everybody in this event loop who names the same endpoint.

    The first user opens it, the last one closes it. All fields of the endpoint count: another token is
    another cluster. Certificate files are read when it is opened.

    :param live_logs: how many jobs' output may be read while they run; what the first user says holds.

    :raises ConnectionConfigError: a certificate file cannot be used.
    """
    clusters = _of_this_loop()
    key = _key(endpoint)
    # No await from here to the count: nobody can come between, and no cancellation either.
    cluster = clusters.get(key)
    if cluster is None:
        client = RayClient(endpoint)
        client.open()
        cluster = clusters[key] = SharedCluster(client, JobPoller(client), LogReads(live_logs))
    cluster.users += 1
    try:
        yield cluster
    finally:
        cluster.users -= 1
        if not cluster.users:
            # Whoever comes from now on opens another.
            del clusters[key]
            await _finished(cluster)


async def _finished(cluster: SharedCluster) -> None:
    """Close it, also when its last user is cancelled meanwhile."""
    closing = asyncio.create_task(cluster.close(), name="close of a Ray cluster")
    _CLOSING.add(closing)
    closing.add_done_callback(_CLOSING.discard)
    await asyncio.shield(closing)


def _of_this_loop() -> _Clusters:
    loop = asyncio.get_running_loop()
    with _LOCK:
        # A loop that ended in the middle leaves its clusters behind.
        for other in [other for other in _CLUSTERS if other.is_closed()]:
            del _CLUSTERS[other]
        return _CLUSTERS.setdefault(loop, {})


def _key(endpoint: RayEndpoint) -> Hashable:
    values = (getattr(endpoint, each.name) for each in fields(endpoint))
    return tuple(frozenset(value.items()) if isinstance(value, Mapping) else value for value in values)
