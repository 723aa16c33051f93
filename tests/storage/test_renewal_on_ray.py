"""Credentials that live for seconds, on a real cluster: what started before and after their end goes on.

The server is one of ours, for no real one gives sessions of less than a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.job_spec import runner_entrypoint, with_worker_hook
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.packages import (
    Package,
    ensure_uploaded,
    folder_package,
    runner_package,
)
from airflow_provider_raytenant.ray_api.shared import shared_cluster
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings
from airflow_provider_raytenant.storage.grants import JobGrant
from stack.deployment import cluster_ray
from tests.fakes.short_lived_s3 import ShortLivedS3

pytestmark = pytest.mark.stack

GIB = 1024**3
TOKEN = "a-token-of-the-renewal-test"
CANARY = "canary-of-the-renewal-test-7f3a"
BOUND = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    directory = tmp_path_factory.mktemp("ray")
    # Keys of its own on a node must not be what the job takes.
    env = {"AWS_ACCESS_KEY_ID": "of-the-node", "AWS_SECRET_ACCESS_KEY": "of-the-node"}
    with RayCluster.start(directory, 3, GIB, cluster_ray(), TOKEN, env) as running:
        yield running


@pytest.fixture
def code() -> Package:
    return folder_package(Path(__file__).parent, owner="acme", excludes=["test_*", "conftest.py"])


def request(code: Package, access: Access) -> dict[str, Any]:
    env = {
        "working_dir": code.uri,
        "py_modules": [runner_package("acme").uri],
        "env_vars": {"RAYTENANT_SUBMISSION_ID": access.submission_id},
    }
    entrypoint = runner_entrypoint(["python", "late_job.py"], private_cwd=False, result_max_bytes=65536)
    return {
        "submission_id": access.submission_id,
        "entrypoint": entrypoint,
        "runtime_env": with_worker_hook(env),
        "entrypoint_num_cpus": 1,
        "metadata": {"raytenant.tenant": "acme"},
    }


async def until(condition: Any, what: str) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.1)


async def test_actors_and_nodes_that_come_after_the_first_credentials_died_read_and_write(
    cluster: RayCluster, s3: ShortLivedS3, access: Access, code: Package, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    notes: list[str] = []
    lines: list[str] = []
    async with shared_cluster(RayEndpoint(cluster.dashboard_url, token=TOKEN)) as shared:
        await ensure_uploaded(shared.client, [code, runner_package("acme")])
        grant = JobGrant(access, lambda: {"CANARY": CANARY}, notes.append, 60.0)
        watch = JobWatch(
            shared, request(code, access), WatchSettings(), lines.append, notes.append, claim=grant.issue
        )
        job = asyncio.create_task(grant.while_it_runs(watch.run()))

        await until(lambda: "lake/tenants/acme/early/1" in s3.objects or job.done(), "the job's first steps")
        assert not job.done(), (await job, lines)
        shown = await asyncio.to_thread(cluster.api, "GET", f"/api/jobs/{access.submission_id}")
        first = next(iter(s3.sessions))
        await until(lambda: s3.why_refused(first, "lake/tenants/acme/x") == "ExpiredToken", "the first death")
        # Both nodes are on this machine. With a place of its own this one finds nothing of the runner's.
        cluster.env["RAYTENANT_ACCESS_DIR"] = str(elsewhere)
        await asyncio.to_thread(cluster.add_node, 1, GIB, 0, {"place": "late"})
        outcome: Outcome = await asyncio.wait_for(job, BOUND)
        shown_last = await asyncio.to_thread(cluster.api, "GET", f"/api/jobs/{access.submission_id}")

    assert outcome.error is None, (outcome.error, lines, notes)
    result = outcome.result
    assert result["last"]["late"]["node"] != result["first"]["node"]
    assert result["last"]["late"]["config"].startswith(str(elsewhere))
    assert result["last"]["early"]["config"].startswith("/tmp/")
    for seen in (result["first"], *result["last"].values(), result["again"]):
        assert (seen["secret"][::-1], seen["claim"]) == (CANARY, None)
    # Nobody ever came with credentials that had expired, were another's, or the node's.
    assert s3.refused == []
    assert len(s3.sessions) >= 3
    # Claimed once, and nothing is left of it.
    assert [r for r in s3.requests if "tickets/" in r] == [
        f"PUT lake/{access.ticket_key}",
        f"GET lake/{access.ticket_key}",
        f"DELETE lake/{access.ticket_key}",
    ]
    assert [name for name in s3.objects if "/.raytenant/" in name] == []
    for info in (shown, shown_last):
        assert CANARY not in json.dumps(info)
        # The address is all that Ray shows, and it opens nothing.
        assert access.ticket_key in info["runtime_env"]["env_vars"]["RAYTENANT_CLAIM"]


def test_the_runner_left_nothing_on_the_node(cluster: RayCluster) -> None:
    left = [
        path for parent in ("/tmp", "/var/tmp") for path in Path(parent).glob("raytenant-access-*try1-0a1b2c")
    ]
    assert left == []
