"""What the poller relies on, by a fake dashboard and a real cluster: listings, reads, supervisors."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import pytest

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import JobNotFoundError
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api.poller import JobPoller
from airflow_provider_raytenant.ray_api.supervisors import NAME_PREFIX
from tests.fakes.ray_server import GIB
from tests.ray_api.contract import BOUND_SECONDS, Contract, opened


async def living(ray: Contract, submission_id: str, wanted: bool) -> None:
    """Wait until the job's supervisor lives, or does not."""
    async with asyncio.timeout(BOUND_SECONDS):
        while (submission_id in await ray.client.supervisors()) is not wanted:
            await asyncio.sleep(0.05)


async def test_who_has_a_supervisor(ray: Contract) -> None:
    """A running job has one from its first moment on, and none soon after it ended."""
    name = await ray.submit("sleep 600")
    await ray.until(name, JobStatus.RUNNING)
    assert name in await ray.client.supervisors()
    brief = await ray.submit("exit 0")
    await ray.ended(brief)
    await living(ray, brief, False)
    assert name in await ray.client.supervisors()
    await ray.client.stop(name)
    await ray.ended(name)
    await living(ray, name, False)


async def test_a_listing_and_single_reads_say_the_same(ray: Contract) -> None:
    name = await ray.submit("exit 3", metadata={"raytenant.tenant": "acme"})
    single = await ray.ended(name)
    listing = await ray.client.listing()

    assert listing.jobs[name] == single
    assert listing.records >= len(listing.jobs)
    assert not listing.unsound


async def test_the_poller(ray: Contract) -> None:
    poller = JobPoller(ray.client)
    names = [await ray.submit(f"exit {code}") for code in (0, 3)]
    for name in names:
        await ray.ended(name)
    looks = [poller.look(name) for name in [*names * 10, "nobody-knows-me"]]
    *found, unknown = await asyncio.gather(*looks, return_exceptions=True)
    await poller.close()

    assert isinstance(unknown, JobNotFoundError)
    assert [job.exit_code for job in found if isinstance(job, JobInfo)] == [0, 3] * 10


@pytest.mark.stack
async def test_supervisors_that_wait_or_die(cluster: RayCluster) -> None:
    """Who waits for resources has none; who was killed has none at once, a second before Ray says FAILED."""
    async with AsyncExitStack() as stack:
        ray = await opened(stack, cluster.dashboard_url, False)
        name = await ray.submit("sleep 600")
        await ray.until(name, JobStatus.RUNNING)
        waiting = await ray.submit("exit 0", entrypoint_num_cpus=2)
        for _ in range(10):
            assert await ray.client.supervisors() & {name, waiting} == {name}
        assert (await ray.client.job(waiting)).status is JobStatus.PENDING

        os.kill(supervisor_pid(cluster, name), signal.SIGKILL)
        await living(ray, name, False)
        job = await ray.until(name, JobStatus.FAILED)
        assert job.error_type == "JOB_SUPERVISOR_ACTOR_DIED"
        await ray.ended(waiting)


@pytest.mark.stack
async def test_supervisors_of_a_node_that_dies(cluster: RayCluster) -> None:
    """They live on in Ray's book until it finds the node dead: 16 s, or at once (measured)."""
    node = cluster.add_node(1, GIB, labels={"where": "second"})
    async with AsyncExitStack() as stack:
        ray = await opened(stack, cluster.dashboard_url, False)
        name = await ray.submit("sleep 600", entrypoint_label_selector={"where": "second"})
        await ray.until(name, JobStatus.RUNNING)
        assert name in await ray.client.supervisors()
        await asyncio.to_thread(cluster.kill_node, node)
        await living(ray, name, False)
        job = await ray.until(name, JobStatus.FAILED)
        assert job.error_type == "JOB_SUPERVISOR_ACTOR_DIED"


def supervisor_pid(cluster: RayCluster, submission_id: str) -> int:
    query = f"filter_keys=name&filter_predicates=%3D&filter_values={NAME_PREFIX}{submission_id}"
    (row,) = cluster.api("GET", f"/api/v0/actors?{query}")["data"]["result"]["result"]
    return int(row["pid"])
