"""What the usage watch relies on, by a fake dashboard and a real cluster."""

from __future__ import annotations

import asyncio
import json
import shlex
from contextlib import AsyncExitStack

import pytest

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api import usage
from tests.fakes.ray_server import GIB
from tests.ray_api.contract import BOUND_SECONDS, Contract, opened
from tests.ray_api.watching import Watched

TASKS = """
import ray, sys, time
ray.init(log_to_driver=False)
hold = ray.remote(num_cpus={cpus})(lambda: time.sleep(600))
held = [hold.remote() for _ in range(int(sys.argv[1]))]
time.sleep(600)
"""

HOLDERS = """
import ray, sys, time
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Inside
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0.25)
def hold():
    time.sleep(600)
@ray.remote(num_cpus=0.25)
def waits():
    ray.get(hold.remote())
@ray.remote(num_cpus=0.25, memory=2**20)
class Actor:
    def waits(self):
        ray.get(hold.options(num_cpus=0).remote())
group = ray.util.placement_group([{"CPU": 0.5, "memory": 2**21}])
ray.get(group.ready())
where = Inside(group, placement_group_bundle_index=0)
inside = hold.options(memory=2**21, scheduling_strategy=where).remote()
actor = Actor.remote()
held = [inside, waits.remote(), actor.waits.remote()]
time.sleep(600)
"""


def python(program: str, *arguments: object) -> str:
    return shlex.join(["python", "-c", program, *map(str, arguments)])


async def held(ray: Contract, submission_id: str, wanted: Resources) -> None:
    """Wait until the job's tasks and actors hold this."""
    seen: object = None
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            while seen != wanted:
                await asyncio.sleep(0.2)
                job_id = (await ray.client.job(submission_id)).ray_job_id
                sample = await ray.client.usage()
                seen = sample.of([job_id] if job_id else [])
    except TimeoutError:
        pytest.fail(f"holds {seen}, not {wanted}")


async def test_what_tasks_hold(ray: Contract) -> None:
    name = await ray.submit(python(TASKS.format(cpus=0.5), 3))
    await held(ray, name, Resources(cpus=1.5))
    await ray.client.stop(name)
    await ray.ended(name)
    assert (await ray.client.job(name)).ray_job_id is not None


async def test_a_job_without_a_driver_of_ray(ray: Contract) -> None:
    name = await ray.submit("echo hello")
    assert (await ray.ended(name)).ray_job_id is None


@pytest.mark.stack
async def test_who_waits_who_is_an_actor_and_who_is_in_a_placement_group(cluster: RayCluster) -> None:
    """The waiting task has given its CPUs back; the actor that waits has not; nothing counts twice."""
    async with AsyncExitStack() as stack:
        ray = await opened(stack, cluster.dashboard_url, False)
        name = await ray.submit(python(HOLDERS))
        # In the group 0.25; the actor 0.25; the task that is waited for 0.25.
        await held(ray, name, Resources(cpus=0.75, memory=3 * 2**20))


@pytest.mark.stack
async def test_a_job_that_declares_one_cpu_and_runs_three_more_is_found_out(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "INTERVAL", 0.5)
    monkeypatch.setattr(usage, "SHARE", 1.0)
    node = cluster.add_node(4, GIB)
    async with AsyncExitStack() as stack:
        stack.callback(cluster.remove_node, node)
        ray = await opened(stack, cluster.dashboard_url, False)
        footprint = json.dumps(Resources(cpus=1).to_json())
        request = ray.request(
            python(TASKS.format(cpus=1), 3),
            metadata={METADATA_PREFIX + "footprint": footprint},
            entrypoint_num_cpus=1,
        )
        watched = Watched(ray.client, request=request, needs_result=False)
        async with asyncio.timeout(BOUND_SECONDS):
            while not watched.noted("held up to 4 CPUs; declared 1"):
                await asyncio.sleep(0.1)
        await ray.client.stop(request["submission_id"])
        outcome = await watched.outcome(BOUND_SECONDS)

    assert watched.notes[-1] == "Peak use: 4 CPUs, of declared 1 CPU"
    assert outcome.usage is not None
    assert outcome.usage["peak"] == {"cpus": 4.0}
