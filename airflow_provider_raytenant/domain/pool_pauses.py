"""Closing the pools of a tenant or a cluster, and opening them again: plans that need no Ray. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_raytenant.domain.pausing import Target, pauses_in, with_pauses
from airflow_provider_raytenant.domain.pool_rows import (
    Change,
    Now,
    PlannedPool,
    PoolPlan,
    PoolsNow,
    TenantPool,
    all_pools,
    pauses_in_force,
    planned_pool,
    targets_of,
)
from airflow_provider_raytenant.domain.pool_sizes import PoolSize
from airflow_provider_raytenant.domain.tenants import TenantFile


def pause(file: TenantFile, target: Target, now: PoolsNow) -> PoolPlan:
    """Close every pool of the target: its tasks wait, and what holds slots ends."""
    pauses = pauses_in_force(file, now.existing) | {target}
    state = Now(now.existing, now.demand, pauses=pauses)
    pools = [pool for pool in all_pools(file, state) if target in targets_of(pool.tenant)]
    rows = [_closed(file, pool, target, state) for pool in pools]
    problems = [
        f"pool {row.name}: is not of our making, so it stays open; delete or rename it"
        for row in rows
        if row.change is Change.REFUSED
    ]
    return PoolPlan(tuple(rows), tuple(problems))


def resume(target: Target, now: PoolsNow) -> PoolPlan:
    """Take a pause out of all descriptions; the next sync gives the pools their slots."""
    rows = []
    for pool in now.existing.values():
        pauses = pauses_in(pool.description)
        if pool.is_ours and target in pauses:
            description = with_pauses(pool.description, pauses - {target})
            why = f"no longer paused with {target}"
            rows.append(
                PlannedPool(pool.name, pool.slots, pool.slots, pool.occupied, why, description, Change.UPDATE)
            )
    return PoolPlan(tuple(rows))


def _closed(file: TenantFile, pool: TenantPool, target: Target, now: Now) -> PlannedPool:
    slot = file.clusters[pool.tenant.cluster].groups[pool.group].slot.resources
    row = planned_pool(pool, PoolSize(0, 0), f"paused with {target}", slot, now)
    found = now.existing.get(pool.name)
    if row.change is Change.REFUSED and found is not None and found.is_ours:
        # Its tasks hold slots of the old shape, and its description has to go on saying which.
        description = with_pauses(found.description, now.pauses_of(pool.tenant))
        return replace(row, change=Change.UPDATE, description=description)
    return row
