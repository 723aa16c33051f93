"""What scoped credentials and secrets cost one try, over a plain submit on loopback.

``make bench SUITE=access``, on a real cluster and a real S3 + STS server of this machine; about two minutes.
Plain jobs and jobs with a claim and two secrets run in turns, one at a time, as a triggerer submits them: its
clients are warm after the first. A job's time is from our first step for its submit to the end that Ray
notes, so that no pause between two looks is in it. Requests are counted apart, by a proxy before the server.
The last line is JSON. To reach: at most 150 ms and 6 requests a try over the plain one.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.job_spec import runner_entrypoint, with_worker_hook
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.local.s3_server import ROLE_ARN, S3Server
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.packages import ensure_uploaded, runner_package
from airflow_provider_raytenant.ray_api.shared import SharedCluster, shared_cluster
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings
from airflow_provider_raytenant.storage.grants import JobGrant

GIB = 1024**3
PAIRS = 15
COUNTED = 3
MOST_MS = 150.0
MOST_REQUESTS = 6
SECRETS = {"DB_PASSWORD": "a-password", "DSN": "postgres://user:a-password@db:5432/acme"}
_ROOT = Path(__file__).parents[1]


class Counter:
    """Passes every request on to S3 as it is, and counts it."""

    def __init__(self, target: str) -> None:
        counter = self
        self.requests = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                counter.requests += 1
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = urllib.request.Request(
                    target + self.path, data=body or None, method=self.command, headers=dict(self.headers)
                )
                try:
                    with urllib.request.urlopen(request) as answer:
                        status, content = answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    status, content = error.code, error.read()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


async def one(
    cluster: RayCluster, shared: SharedCluster, name: str, granted: bool, aws_conn_id: str = "aws_bench"
) -> float:
    """Milliseconds from the first step of a job's submit to its end."""
    env: dict[str, Any] = {
        "py_modules": [runner_package("acme").uri],
        "env_vars": {"RAYTENANT_SUBMISSION_ID": name},
    }
    request = {
        "submission_id": name,
        "entrypoint": runner_entrypoint(["true"], private_cwd=True, result_max_bytes=1024),
        "runtime_env": with_worker_hook(env) if granted else env,
        "entrypoint_num_cpus": 1,
    }
    access = Access(aws_conn_id, ROLE_ARN, "s3://raytenant/tenants/acme", name)
    grant = JobGrant(access, lambda: SECRETS, print, 30.0)
    begun = time.time()
    claim = grant.issue if granted else None
    watch = JobWatch(shared, request, WatchSettings(), lambda line: None, lambda text: None, claim=claim)
    outcome = await (grant.while_it_runs(watch.run()) if granted else watch.run())
    if outcome.error is not None:
        raise outcome.error
    info = await asyncio.to_thread(cluster.api, "GET", f"/api/jobs/{name}")
    return float(info["end_time"] / 1000 - begun) * 1000


async def compare(cluster: RayCluster, counter: Counter) -> dict[str, Any]:
    times: dict[bool, list[float]] = {False: [], True: []}
    async with shared_cluster(RayEndpoint(cluster.dashboard_url)) as shared:
        await ensure_uploaded(shared.client, [runner_package("acme")])
        cold = [await one(cluster, shared, f"cold-{granted}", granted) for granted in (False, True)]
        for number in range(PAIRS):
            # In turns, and either first: what grows with the records is in both.
            for granted in (False, True) if number % 2 else (True, False):
                name = f"{'granted' if granted else 'plain'}-{number}"
                times[granted].append(await one(cluster, shared, name, granted))
        for number in range(COUNTED):
            await one(cluster, shared, f"counted-{number}", True, "aws_counted")
    plain, granted_ms = (statistics.median(times[granted]) for granted in (False, True))
    return {
        "plain_ms": round(plain),
        "granted_ms": round(granted_ms),
        "over_ms": round(granted_ms - plain),
        "ratio": round(granted_ms / plain, 3),
        "first_over_ms": round(cold[1] - cold[0]),
        "requests": counter.requests / COUNTED,
    }


def main() -> int:
    """Measure, print a line for people and a line of JSON; exit code 1 if the aims are missed."""
    own = _ROOT / ".venv-cluster" / "bin" / "ray"
    binary = own if own.is_file() else Path(sys.executable).with_name("ray")
    with (
        tempfile.TemporaryDirectory() as folder,
        S3Server.start(Path(folder) / "s3") as s3,
        RayCluster.start(Path(folder) / "ray", 2, GIB, binary) as cluster,
    ):
        counter = Counter(s3.endpoint_url)
        for name, address in (("AWS_BENCH", s3.endpoint_url), ("AWS_COUNTED", counter.url)):
            extra = {"endpoint_url": address, "region_name": s3.region}
            keys = {"login": s3.access_key, "password": s3.secret_key}
            os.environ[f"AIRFLOW_CONN_{name}"] = json.dumps({"conn_type": "aws", **keys, "extra": extra})
        figures = asyncio.run(compare(cluster, counter))
        counter.close()
    reached = figures["over_ms"] <= MOST_MS and figures["requests"] <= MOST_REQUESTS
    print(
        f"a job took {figures['plain_ms']} ms, with credentials and secrets {figures['granted_ms']} ms: "
        f"{figures['over_ms']} ms more, {figures['requests']:g} requests to S3 and STS a try"
    )
    print(json.dumps({"suite": "access", "figures": figures, "reached": reached}))
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
