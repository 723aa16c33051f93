"""What a look at the use of all jobs costs Ray's head, with more and more tasks behind it.

``make bench SUITE=usage``, on a real cluster of this machine; about three minutes. ``sample`` is ours;
``tasks`` asks the state API for the running tasks of one job, as seems natural. Both ask the same cluster in
the same run, so their ratio means something on any machine. The last line is JSON.
To reach: 20000 finished tasks cost a sample at most 1.5 times what none cost, and 200 queued ones neither.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.usage import PATH
from benchmarks.poller_cost import CountingClient, Server, measure

GIB = 1024**3
FINISHED: Final = (0, 1000, 20_000)
QUEUED: Final = 200
MOST_GROWTH: Final = 1.5
_QUIET: Final = 4.0
_PATIENCE: Final = 300.0
_ROOT = Path(__file__).parents[1]

PROGRAM = f"""
import pathlib, ray, sys, time
ray.init(log_to_driver=False)
folder = pathlib.Path(sys.argv[1])
quick = ray.remote(num_cpus=1)(lambda: None)
hold = ray.remote(num_cpus=1)(lambda: time.sleep(3600))
finished = 0
def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.2)
for goal in {FINISHED}:
    wait_for(f"go-{{goal}}")
    while finished < goal:
        ray.get([quick.remote() for _ in range(500)])
        finished += 500
    (folder / f"there-{{goal}}").touch()
wait_for("go-queued")
held = [hold.remote() for _ in range({QUEUED})]
(folder / "there-queued").touch()
time.sleep(3600)
"""


async def reach(folder: Path, phase: str) -> None:
    """Let the job go on to this phase, and Ray's books settle."""
    (folder / f"go-{phase}").touch()
    async with asyncio.timeout(_PATIENCE):
        while not (folder / f"there-{phase}").exists():
            await asyncio.sleep(0.2)
    # Events of tasks are sent once a second.
    await asyncio.sleep(_QUIET)


async def compare(cluster: RayCluster, folder: Path) -> list[dict[str, Any]]:
    server, rows = Server.of(cluster), list[dict[str, Any]]()
    (folder / "program.py").write_text(PROGRAM)
    async with CountingClient(RayEndpoint(cluster.dashboard_url), timeout=60.0) as client:
        entrypoint = f"python {folder / 'program.py'} {folder}"
        await client.submit({"submission_id": "j", "entrypoint": entrypoint, "entrypoint_num_cpus": 0.5})
        for phase in (*map(str, FINISHED), "queued"):
            await reach(folder, phase)
            job_id = (await client.job("j")).ray_job_id
            before = server.cpu()
            await asyncio.sleep(_QUIET)
            server.idle = (server.cpu() - before) / _QUIET
            filters = [("job_id", job_id), ("state", "RUNNING")]
            named = [("filter_keys", key) for key, _ in filters]
            named += [("filter_values", str(value)) for _, value in filters]
            query = urlencode([*named, *[("filter_predicates", "=")] * 2, ("detail", 1), ("limit", 10_000)])

            async def tasks(query: str = query) -> None:
                await client._request("GET", f"/api/v0/tasks?{query}")

            size = await client._request("GET", PATH, parse=len)
            costs = {
                "sample": await measure(server, client, client.usage),
                "tasks": await measure(server, client, tasks),
            }
            rows.append({"phase": phase, "bytes": size, **{k: asdict(v) for k, v in costs.items()}})
            _print(rows[-1])
    return rows


def main() -> int:
    """Measure, print a table for people and a line of JSON; exit code 1 if the aim is missed."""
    own = _ROOT / ".venv-cluster" / "bin" / "ray"
    binary = own if own.is_file() else Path(sys.executable).with_name("ray")
    with tempfile.TemporaryDirectory() as folder, RayCluster.start(Path(folder), 3, GIB, binary) as cluster:
        rows = asyncio.run(compare(cluster, Path(folder)))
    first, *others = (row["sample"]["server_ms"] for row in rows)
    growth = round(max(others) / max(first, 0.1), 2)
    reached = growth <= MOST_GROWTH
    print(json.dumps({"suite": "usage", "figures": rows, "growth": growth, "reached": reached}))
    return 0 if reached else 1


def _print(row: dict[str, Any]) -> None:
    sample, tasks = row["sample"]["server_ms"], row["tasks"]["server_ms"]
    phase = "200 queued tasks" if row["phase"] == "queued" else f"{row['phase']:>5} finished tasks"
    print(
        f"{phase:20}: a sample of {row['bytes'] / 1024:.0f} KiB costs {sample:g} ms of server CPU, "
        f"a list of running tasks {tasks:g} ms ({tasks / max(sample, 0.1):.1f} times)",
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
