"""What waiting tasks cost Ray's dashboard: requests and server CPU for a round of looks.

``make bench SUITE=poller``, on a real cluster of this machine; about two minutes. ``each`` reads every job
by itself, eight at a time, as tasks without a shared poller do; ``poller`` is ours. Both look at the same
jobs in the same run, so their ratio means something on any machine. The last line is JSON.
To reach: one request a round for a thousand tasks, and never more than 1.5 times the CPU of ``each``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.poller import SINGLES_AT_ONCE, JobPoller

GIB = 1024**3
CASES = ((1, 1), (10, 10), (100, 100), (1000, 1000), (10, 1000))
"""Waiting tasks, and records that Ray has then."""

MOST_CPU = 1.5
LEAST_REQUESTS = 1.0
_LONG_ENOUGH = 4.0
_ROOT = Path(__file__).parents[1]


class CountingClient(RayClient):
    """Counts its requests."""

    requests = 0

    async def _request(self, *arguments: Any, **options: Any) -> Any:
        self.requests += 1
        return await super()._request(*arguments, **options)


@dataclass
class Server:
    """The processes that answer: the dashboard with its parts, and Ray's own store behind it."""

    processes: list[psutil.Process]
    idle: float = 0.0

    @classmethod
    def of(cls, cluster: RayCluster) -> Server:
        children = psutil.Process(cluster.head.service.pid).children(recursive=True)
        roots = [p for p in children if {"dashboard.py", "gcs_server"} & {Path(a).name for a in p.cmdline()}]
        return cls([*roots, *(child for root in roots for child in root.children(recursive=True))])

    def cpu(self) -> float:
        """Seconds since they began."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)


@dataclass
class Cost:
    """Of one round: requests, CPU of server and of this process in milliseconds."""

    requests: float
    server_ms: float
    own_ms: float


async def measure(server: Server, client: CountingClient, play: Callable[[], Awaitable[object]]) -> Cost:
    """The mean of as many rounds as fit into some seconds, less what the server does when idle."""
    await play()
    rounds, requests, cpu = 0, client.requests, server.cpu()
    own, begun = time.process_time(), time.monotonic()
    while time.monotonic() - begun < _LONG_ENOUGH:
        await play()
        rounds += 1
    took = time.monotonic() - begun
    used = server.cpu() - cpu - server.idle * took
    return Cost(
        round((client.requests - requests) / rounds, 2),
        round(1000 * used / rounds, 1),
        round(1000 * (time.process_time() - own) / rounds, 1),
    )


async def add_records(client: RayClient, names: list[str]) -> None:
    """Jobs that Ray refuses to start: records without a process."""
    for name in names:
        request = {"submission_id": name, "entrypoint": "true", "entrypoint_num_cpus": -1}
        await client.submit({**request, "metadata": {f"raytenant.key-{n}": "some text" for n in range(12)}})


async def compare(cluster: RayCluster) -> list[dict[str, Any]]:
    server, rows, names = Server.of(cluster), [], list[str]()
    async with CountingClient(RayEndpoint(cluster.dashboard_url)) as client:
        before = server.cpu()
        await asyncio.sleep(_LONG_ENOUGH)
        server.idle = (server.cpu() - before) / _LONG_ENOUGH
        for tasks, records in CASES:
            more = [f"j{number}" for number in range(len(names), records)]
            await add_records(client, more)
            names += more
            waiting = names[:tasks]
            at_once = asyncio.Semaphore(SINGLES_AT_ONCE)
            poller = JobPoller(client)

            async def read(name: str, at_once: asyncio.Semaphore = at_once) -> None:
                async with at_once:
                    await client.job(name)

            async def each(waiting: list[str] = waiting) -> None:
                await asyncio.gather(*[read(name) for name in waiting])

            async def ours(waiting: list[str] = waiting, poller: JobPoller = poller) -> None:
                await asyncio.gather(*[poller.look(name) for name in waiting])

            for _ in range(10):
                await ours()
            costs = {
                "each": await measure(server, client, each),
                "poller": await measure(server, client, ours),
            }
            await poller.close()
            rows.append({"tasks": tasks, "records": records, **{k: asdict(v) for k, v in costs.items()}})
            _print(rows[-1])
    return rows


def main() -> int:
    """Measure, print a table for people and a line of JSON; exit code 1 if the aims are missed."""
    own = _ROOT / ".venv-cluster" / "bin" / "ray"
    binary = own if own.is_file() else Path(sys.executable).with_name("ray")
    with tempfile.TemporaryDirectory() as folder, RayCluster.start(Path(folder), 1, GIB, binary) as cluster:
        rows = asyncio.run(compare(cluster))
    thousand = next(row for row in rows if row["tasks"] == 1000)
    ratios = [row["poller"]["server_ms"] / max(row["each"]["server_ms"], 0.1) for row in rows]
    reached = thousand["poller"]["requests"] <= LEAST_REQUESTS and max(ratios) <= MOST_CPU
    print(json.dumps({"suite": "poller", "figures": rows, "reached": reached}))
    return 0 if reached else 1


def _print(row: dict[str, Any]) -> None:
    each, ours = row["each"], row["poller"]
    print(
        f"{row['tasks']:5} tasks, {row['records']:5} records: requests {each['requests']:g} -> "
        f"{ours['requests']:g}; server CPU {each['server_ms']:g} -> {ours['server_ms']:g} ms "
        f"(1/{each['server_ms'] / max(ours['server_ms'], 0.1):.1f}); own CPU {each['own_ms']:g} -> "
        f"{ours['own_ms']:g} ms",
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
