"""What several tests share: the design's example file, a small file to build on, hypothesis settings."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from hypothesis import settings

from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import Cluster, Tenant, TenantFile

GIB = 1024**3

# The same examples in every run: a red test stays red until somebody mends it.
seeded = settings(derandomize=True, deadline=None, max_examples=80)

DESIGN_EXAMPLE = """\
deployment: prod-eu
defaults:                              # for every tenant
  cluster: shared
  storage: s3://lake/tenants/{tenant}
  credentials: {aws_conn_id: aws_lake, role_arn: "arn:aws:iam::000000000000:role/tenant-jobs"}   # or: node
clusters:
  shared:
    ray_conn_id: ray_shared
    usable: 90%                        # of what each node reports
    reserve: {cpus: 8, memory: 32GiB}  # for what does not come through here (Serve, notebooks)
    autoscale: {max: {cpus: 256, memory: 1TiB}, largest_node: {cpus: 16, memory: 64GiB}}
    groups:
      cpu: {slot: {cpus: 1, memory: 4GiB}}
      gpu: {slot: {gpus: 1, cpus: 8, memory: 64GiB}}
tenants:
  acme:
    guarantee: 16                      # slots of the first group, or {cpu: 16, gpu: 2}
    weight: 2
    limit: 128
    runtime_env: {pip: [pandas==2.2.3], env_vars: {REGION: eu}}
  globex: {guarantee: 8}
"""


def example_data() -> dict[str, Any]:
    """The design's example as plain data, to be changed by the test."""
    data: dict[str, Any] = yaml.safe_load(DESIGN_EXAMPLE)
    return copy.deepcopy(data)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The example with the value at a dotted path set; ``...`` takes the key away."""
    data = example_data()
    *parents, last = path.split(".")
    place = data
    for key in parents:
        place = place.setdefault(key, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


def make_cluster(**changes: Any) -> Cluster:
    """A cluster of a CPU group (1 CPU, 4 GiB) and a GPU group (1 GPU, 8 CPU, 64 GiB)."""
    groups = {
        "cpu": {"slot": {"cpus": 1, "memory": "4GiB"}},
        "gpu": {"slot": {"gpus": 1, "cpus": 8, "memory": "64GiB"}},
    }
    return Cluster.model_validate({"ray_conn_id": "ray", "groups": groups, **changes})


def make_tenant(name: str = "acme", **values: Any) -> Tenant:
    """A tenant of the cluster ``shared``."""
    return Tenant.model_validate({"name": name, "cluster": "shared", **values})


def make_file(cluster: Cluster, *tenants: Tenant, **more: Cluster) -> TenantFile:
    """A file with the cluster as ``shared``, the tenants, and other clusters by name."""
    return TenantFile(
        deployment="test",
        clusters={"shared": cluster, **more},
        tenants={tenant.name: tenant for tenant in tenants},
    )


def make_node(
    cpus: float = 0.0,
    gib: float = 0.0,
    gpus: float = 0.0,
    labels: dict[str, str] | None = None,
    **custom: float,
) -> Node:
    """An alive node; keyword arguments beyond the plain ones are custom resources."""
    return Node("n", Resources(cpus, int(gib * GIB), gpus, custom), labels or {})
