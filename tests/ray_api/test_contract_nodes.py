"""What dedicated nodes rely on: how Ray reads the label selectors that we write, and what it hands on."""

from __future__ import annotations

import json
import shlex
from contextlib import AsyncExitStack
from typing import Any

import pytest

from airflow_provider_raytenant.domain.dedication import Sets, driver_selector, task_options
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.tenants import DedicatedNodes
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.local.ray_node import MIB
from tests.ray_api.contract import Contract, opened

pytestmark = pytest.mark.stack

ACME = DedicatedNodes(label={"team": "acme"})
SETS: Sets = [ACME, DedicatedNodes(label={"team": "globex"})]

# The driver holds half of its node's only CPU. A task of a whole CPU would wait for ever if it had the
# driver's selector; it runs elsewhere. One with the options runs beside the driver.
# (Which node a driver itself takes for its own is not asked: on one machine it may be the head.)
PROGRAM = """
import json, os, ray
def here():
    return ray.get_runtime_context().get_node_id()
ray.init(log_to_driver=False)
options = json.loads(os.environ["RAYTENANT_TASK_OPTIONS"])
there = ray.get(ray.remote(num_cpus=1)(here).remote())
beside = ray.get(ray.remote(num_cpus=0.5, **options)(here).remote())
print(os.environ["NODE"], there, beside)
raise SystemExit((there == os.environ["NODE"]) + 2 * (beside != os.environ["NODE"]))
"""


async def _node_of(ray: Contract, cluster: RayCluster, entrypoint: str, **more: Any) -> str:
    """The name of the node that the driver ran on."""
    job = await ray.ended(await ray.submit(entrypoint, **more))
    assert job.status is JobStatus.SUCCEEDED, job
    node_id = cluster.api("GET", f"/api/jobs/{job.submission_id}")["driver_node_id"]
    return next(name for name, node in cluster.alive_nodes().items() if node["node_id"] == node_id)


async def test_drivers_keep_to_their_own_nodes_and_their_tasks_if_they_ask_for_it(
    cluster: RayCluster,
) -> None:
    node = cluster.add_node(1, 256 * MIB, labels={"team": "acme"})
    try:
        async with AsyncExitStack() as stack:
            ray = await opened(stack, cluster.dashboard_url, False)
            options = json.dumps(task_options("acme", ACME, SETS))
            listed = {one.labels.get("team"): one for one in await ray.client.nodes()}
            assert listed["acme"].total.cpus == 1
            common = driver_selector("x", None, SETS, None)
            assert common == {"team": "!in(acme,globex)"}
            for _ in range(2):
                place = await _node_of(ray, cluster, "true", entrypoint_label_selector=common)
                assert place == cluster.head.name
            place = await _node_of(
                ray,
                cluster,
                f"python -c {shlex.quote(PROGRAM)}",
                entrypoint_num_cpus=0.5,
                entrypoint_label_selector=driver_selector("acme", ACME, SETS, None),
                runtime_env={"env_vars": {"RAYTENANT_TASK_OPTIONS": options, "NODE": listed["acme"].node_id}},
            )
            assert place == node.name
    finally:
        cluster.remove_node(node)
