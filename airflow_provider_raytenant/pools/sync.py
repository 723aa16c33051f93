"""From nodes to pools: plan, and write what the plan changes. The commands and the controller share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_raytenant.database.demand import AT_MOST, TaskLimits, read_task_limits
from airflow_provider_raytenant.database.pools import read_largest_requests, read_pools, write_pools
from airflow_provider_raytenant.domain.capacity import Node, group_sizes
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.pool_rows import Change, PoolPlan, PoolsNow
from airflow_provider_raytenant.domain.tenants import TenantFile


@dataclass(frozen=True)
class DagFacts:
    """What DAGs say of their tasks: the largest request by pool, and limits by task."""

    requests: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    limits: TaskLimits = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterState:
    """What Ray says of a cluster: its alive nodes, and by pool what jobs hold that Airflow does not count."""

    nodes: Sequence[Node]
    uncounted: Mapping[str, int] = field(default_factory=dict)


def read_dags() -> DagFacts:
    """Read every DAG: to be done seldom.

    :raises DatabaseUnavailableError: there is no sound answer.
    """
    return DagFacts(read_largest_requests(), read_task_limits())


def plan_pools(file: TenantFile, clusters: Mapping[str, ClusterState], dags: DagFacts) -> PoolPlan:
    """What the pools should be; nothing is written.

    :param clusters: those that could be read; the pools of others are left as they are.
    """
    return _plan(file, clusters, dags, read_pools(dags.limits, _most_slots(file, clusters)))


def sync_pools(file: TenantFile, clusters: Mapping[str, ClusterState], dags: DagFacts) -> PoolPlan:
    """Make the pools what they should be; the plan that was written.

    The pools are locked, against the scheduler too, only if a look without locks finds something to do;
    what is held and what waits is then read anew, and the plan made anew, under the locks. Ray was asked
    before that, so no lock waits for it.
    """
    planned = plan_pools(file, clusters, dags)
    if not planned.changes:
        return planned
    most = _most_slots(file, clusters)
    return write_pools(lambda now: _plan(file, clusters, dags, now), dags.limits, most)


def refusals(planned: PoolPlan) -> list[str]:
    """Why pools had to be left as they are."""
    refused = [pool.name for pool in planned.pools if pool.change is Change.REFUSED]
    return [text for text in planned.problems if any(text.startswith(f"pool {name}: ") for name in refused)]


def _plan(file: TenantFile, clusters: Mapping[str, ClusterState], dags: DagFacts, now: PoolsNow) -> PoolPlan:
    nodes = {name: state.nodes for name, state in clusters.items()}
    uncounted: dict[str, int] = {}
    for state in clusters.values():
        for pool, slots in state.uncounted.items():
            uncounted[pool] = uncounted.get(pool, 0) + slots
    return plan(file, nodes, now.existing, dags.requests, now.demand, uncounted)


def _most_slots(file: TenantFile, clusters: Mapping[str, ClusterState]) -> int:
    """So many tasks of a pool could start at most: no more need be read of it."""
    sizes = [
        size.slots
        for name, cluster in file.clusters.items()
        if name in clusters
        for size in group_sizes(cluster, clusters[name].nodes).values()
    ]
    return max([AT_MOST, *sizes])
