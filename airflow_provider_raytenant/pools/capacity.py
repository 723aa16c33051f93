"""What Ray says of every cluster of the tenant file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_raytenant.database.connections import read_endpoint
from airflow_provider_raytenant.database.tasks import read_tasks
from airflow_provider_raytenant.domain.sweep import own_jobs, uncounted
from airflow_provider_raytenant.domain.tenants import Cluster, TenantFile
from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.pools.sync import ClusterState
from airflow_provider_raytenant.ray_api.client import RayClient


@dataclass(frozen=True)
class Clusters:
    """The state by cluster, and by cluster why it could not be read."""

    states: Mapping[str, ClusterState]
    failures: Mapping[str, str]


def read_clusters(file: TenantFile) -> Clusters:
    """Ask every cluster for its nodes and jobs, side by side."""
    return asyncio.run(_read_all(file))


async def _read_all(file: TenantFile) -> Clusters:
    clusters = file.clusters
    answers = await asyncio.gather(*(_read_one(cluster, file.deployment) for cluster in clusters.values()))
    states, failures = {}, {}
    for name, answer in zip(clusters, answers, strict=True):
        if isinstance(answer, str):
            failures[name] = answer
        else:
            states[name] = answer
    return Clusters(states, failures)


async def _read_one(cluster: Cluster, deployment: str) -> ClusterState | str:
    try:
        async with RayClient(read_endpoint(cluster.ray_conn_id)) as client:
            # Jobs before their tasks, or a job that starts in between would seem to have none.
            jobs = own_jobs((await client.listing()).jobs.values(), deployment)
            live = [job for job in jobs if job.live]
            return ClusterState(await client.nodes(), uncounted(live, read_tasks(live)))
    except RayTenantError as error:
        return str(error)
