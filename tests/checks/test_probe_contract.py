"""The doctor's job on real Ray: an idle head and a node that works."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_raytenant.checks.cluster import refuses_strangers
from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.checks.node_report import judge_report, start_timeout_of
from airflow_provider_raytenant.checks.nodes import judge_head
from airflow_provider_raytenant.checks.probe import ID_PREFIX, run_probe
from airflow_provider_raytenant.domain.tenants import Tenant
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint

pytestmark = pytest.mark.stack

GIB = 1024**3
TOKEN = "of-the-tests"
NO_S3 = {"env_vars": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "eu"}}
ACME = Tenant.model_validate(
    {
        "name": "acme",
        "cluster": "one",
        "storage": "s3://lake/tenants/acme",
        "credentials": "node",
        "runtime_env": NO_S3,
    }
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    own = Path(__file__).parents[2] / ".venv-cluster" / "bin" / "ray"
    binary = own if own.is_file() else Path(sys.executable).with_name("ray")
    env = {
        "RAY_JOB_START_TIMEOUT_SECONDS": "901",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    folder = tmp_path_factory.mktemp("ray")
    with RayCluster.start(folder, 2, GIB, binary, token=TOKEN, env=env, head_cpus=0) as running:
        yield running


async def test_it_looks_at_every_node_and_leaves_no_record(cluster: RayCluster) -> None:
    endpoint = RayEndpoint(cluster.dashboard_url, token=TOKEN)
    async with RayClient(endpoint) as client:
        nodes = await client.nodes()
        report = await run_probe(client, "prod", {"acme": ACME}, 60.0)
        # While the second one runs, the first one's record would come back.
        assert (await run_probe(client, "prod", {}, 60.0)).trouble == ""
        left = [job.submission_id for job in await client.jobs()]
    assert report.trouble == ""
    assert set(report.nodes) == {node.node_id for node in nodes}
    assert {finding.level for finding in judge_report(report)} == {Level.OK}
    assert start_timeout_of(report) == 901.0
    assert all(node.s3["acme"].startswith("EndpointConnectionError") for node in report.nodes.values())
    assert (len(nodes), judge_head(nodes).level) == (2, Level.OK)
    assert [name for name in left if name.startswith(ID_PREFIX)] == []
    assert await refuses_strangers(endpoint)
