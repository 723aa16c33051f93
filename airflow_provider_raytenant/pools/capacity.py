"""The alive nodes of every cluster of the tenant file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_raytenant.database.connections import read_endpoint
from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.tenants import Cluster, TenantFile
from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.ray_api.client import RayClient


@dataclass(frozen=True)
class ClusterNodes:
    """Nodes by cluster, and by cluster why it could not be read."""

    nodes: Mapping[str, list[Node]]
    failures: Mapping[str, str]


def read_nodes(file: TenantFile) -> ClusterNodes:
    """Ask every cluster for its nodes, side by side."""
    return asyncio.run(_read_all(file.clusters))


async def _read_all(clusters: Mapping[str, Cluster]) -> ClusterNodes:
    answers = await asyncio.gather(*(_read_one(cluster) for cluster in clusters.values()))
    nodes, failures = {}, {}
    for name, answer in zip(clusters, answers, strict=True):
        if isinstance(answer, str):
            failures[name] = answer
        else:
            nodes[name] = answer
    return ClusterNodes(nodes, failures)


async def _read_one(cluster: Cluster) -> list[Node] | str:
    try:
        async with RayClient(read_endpoint(cluster.ray_conn_id)) as client:
            return await client.nodes()
    except RayTenantError as error:
        return str(error)
