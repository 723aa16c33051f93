"""From nodes to pools: plan, and write what the plan changes. The commands and the controller share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_raytenant.database.pools import read_pools, write_pools
from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.pool_plan import Change, ExistingPool, PoolPlan, plan
from airflow_provider_raytenant.domain.tenants import TenantFile

LargestRequests = Mapping[str, tuple[int, str]]


def plan_pools(file: TenantFile, nodes: Mapping[str, Sequence[Node]], requests: LargestRequests) -> PoolPlan:
    """What the pools should be; nothing is written."""
    return plan(file, nodes, read_pools(), requests)


def sync_pools(file: TenantFile, nodes: Mapping[str, Sequence[Node]], requests: LargestRequests) -> PoolPlan:
    """Make the pools what they should be; the plan that was written.

    The pools are locked, against the scheduler too, only if a look without locks finds something to do;
    the plan is then made anew under the locks.
    """
    planned = plan_pools(file, nodes, requests)
    if not planned.changes:
        return planned

    def planner(existing: Mapping[str, ExistingPool]) -> PoolPlan:
        return plan(file, nodes, existing, requests)

    return write_pools(planner)


def refusals(planned: PoolPlan) -> list[str]:
    """Why pools had to be left as they are."""
    refused = [pool.name for pool in planned.pools if pool.change is Change.REFUSED]
    return [text for text in planned.problems if any(text.startswith(f"pool {name}: ") for name in refused)]
