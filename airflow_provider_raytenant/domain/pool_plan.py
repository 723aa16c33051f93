"""What Airflow's pools should be, from the tenant file, the nodes, the pools there are, what waits.

Pure: reading and writing pools is the business of :mod:`airflow_provider_raytenant.pools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_raytenant.domain.capacity import GroupSize, Node, group_sizes
from airflow_provider_raytenant.domain.dedication import cluster_of, distinct, is_of, nodes_of
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_rows import (
    Change,
    ExistingPool,
    Now,
    PlannedPool,
    PoolPlan,
    TenantPool,
    all_pools,
    pauses_in_force,
    planned_pool,
    pools_of,
    slot_changed_while_occupied,
    takes_part,
)
from airflow_provider_raytenant.domain.pool_sizes import Claim, size_pools
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import Cluster, DedicatedNodes, PoolKind, Tenant, TenantFile


@dataclass
class _Draft:
    pools: list[PlannedPool] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Where:
    """Nodes of a cluster that a plan is about: ``own`` says which, ``None`` is the common ones."""

    name: str
    cluster: Cluster
    own: DedicatedNodes | None


def plan(
    file: TenantFile,
    nodes: Mapping[str, Sequence[Node]],
    existing: Mapping[str, ExistingPool],
    largest_request: Mapping[str, tuple[int, str]],
    demand: Mapping[str, Demand] | None = None,
    uncounted: Mapping[str, int] | None = None,
) -> PoolPlan:
    """The plan for every cluster whose nodes are known.

    :param nodes: alive nodes by cluster. A cluster that could not be read is left out; its pools are
        then left as they are.
    :param existing: all pools by name, ours or not.
    :param largest_request: by pool, the most slots that a task of a DAG asks for, and that task's name.
    :param demand: by pool, what waits for it.
    :param uncounted: by pool, slots that live Ray jobs hold and Airflow does not count, see
        :func:`~airflow_provider_raytenant.domain.sweep.uncounted`.
    """
    now = Now(existing, demand or {}, uncounted or {}, largest_request, pauses_in_force(file, existing))
    draft, planned = _Draft(), {pool.name for pool in all_pools(file, now)}
    now = replace(now, leftovers={n: p for n, p in existing.items() if p.is_ours and n not in planned})
    for cluster_name, cluster in file.clusters.items():
        tenants = file.tenants_of(cluster_name)
        sets = distinct(tenant.nodes for tenant in tenants)
        for own in [None, *sets] if cluster_name in nodes else ():
            members = [tenant for tenant in tenants if is_of(tenant.nodes, own)]
            alive = nodes_of(own, sets, nodes[cluster_name])
            where = _Where(cluster_name, cluster_of(own, cluster), own)
            _plan_set(draft, where, members, alive, now)
    if set(file.clusters) <= set(nodes):
        # Only when every cluster was read is a pool that nobody claims surely a leftover.
        draft.pools += _leftovers(now)
    return PoolPlan(tuple(draft.pools), tuple(draft.problems))


def _plan_set(
    draft: _Draft,
    where: _Where,
    tenants: Sequence[Tenant],
    nodes: Sequence[Node],
    now: Now,
) -> None:
    """The pools of the tenants that share these nodes: the common ones, or the same dedicated ones."""
    cluster = where.cluster
    are_missing = where.own is not None and not nodes and where.own.autoscale is None
    if are_missing:
        # Said once, instead of for every guarantee and every task.
        draft.problems.append(_nodes_problem(where, tenants))
    for group, size in group_sizes(cluster, nodes).items():
        takers = [tenant for tenant in tenants if takes_part(tenant, group, cluster)]
        pools = {pool.name: pool for tenant in takers for pool in pools_of(tenant, group, cluster, now)}
        slot = cluster.groups[group].slot.resources
        claims = [_claim(tenant, group, cluster, now) for tenant in takers]
        if not are_missing:
            draft.problems += _promise_problems(where, group, claims, size)
        gone = _gone(where, group, now)
        for name, sized in size_pools(size.slots, [*claims, *gone]).items():
            if name not in pools:
                continue
            why = f"{sized.why}; {_whole(size, where, group)}"
            pool = replace(planned_pool(pools[name], sized, why, slot, now), shares=_shared(where, group))
            draft.pools.append(pool)
            request = None if are_missing else now.largest_request.get(name)
            draft.problems += _pool_problems(pool, now.existing.get(name), request, slot)


def _claim(tenant: Tenant, group: str, cluster: Cluster, now: Now) -> Claim:
    """What a tenant has coming in a group, with its pools within where it has several."""
    pools = list(pools_of(tenant, group, cluster, now))
    whole = Claim(
        pool=pools[0].name,
        guarantee=tenant.share("guarantee", group, cluster.default_group) or 0,
        weight=tenant.weight,
        limit=tenant.share("limit", group, cluster.default_group),
        is_paused=bool(now.pauses_of(tenant)),
    )
    slot = cluster.groups[group].slot.resources
    own = [_state(_own_claim(pool, cluster), pool, slot, now) for pool in pools]
    return replace(whole, members=own) if len(own) > 1 else _state(whole, pools[0], slot, now)


def _own_claim(pool: TenantPool, cluster: Cluster) -> Claim:
    """What a pool has coming of its tenant's share."""
    tenant, default_group = pool.tenant, cluster.default_group
    if pool.kind is PoolKind.LARGE:
        least = tenant.large_slots(pool.group, default_group)
        return Claim(pool.name, about="large requests" + (f", of {least} slots or more" if least else ""))
    if pool.kind is PoolKind.BACKFILL:
        weight = tenant.backfill.weight if tenant.backfill is not None else 1.0
        limit = tenant.backfill_limit(pool.group, default_group)
        about = f"backfills, weight {weight:g}" + (f", limit {limit}" if limit is not None else "")
        return Claim(pool.name, weight=weight, limit=limit, about=about)
    return Claim(pool.name)


def _state(claim: Claim, pool: TenantPool, slot: Resources, now: Now) -> Claim:
    """The claim with what is held and what waits."""
    found = now.existing.get(pool.name)
    occupied = found.occupied if found is not None else 0
    if found is not None and slot_changed_while_occupied(found, slot):
        # It stays as it is: what is open there may be taken at any moment.
        occupied = max(occupied, found.slots)
    return replace(
        claim,
        occupied=occupied,
        uncounted=now.uncounted.get(pool.name, 0),
        demand=now.demand.get(pool.name, Demand()),
        is_paused=bool(now.pauses_of(pool.tenant)),
    )


def _gone(where: _Where, group: str, now: Now) -> list[Claim]:
    """What pools still hold of these slots whose tenant or group the file does not have any more."""
    return [
        Claim(name, occupied=pool.occupied, uncounted=now.uncounted.get(name, 0), is_paused=True)
        for name, pool in sorted(now.leftovers.items())
        if pool.place == (where.name, group) and where.own is None
    ]


def _shared(where: _Where, group: str) -> str:
    shared = f"{where.name}/{group}"
    return shared if where.own is None else f"{shared} with {where.own}"


def _whole(size: GroupSize, where: _Where, group: str) -> str:
    whole = f"{where.name}/{group}: {size.slots} ({size.why})"
    return whole if where.own is None else f"{whole} with {where.own}"


def _nodes_problem(where: _Where, tenants: Sequence[Tenant]) -> str:
    names = ", ".join(tenant.name for tenant in tenants)
    return (
        f"cluster {where.name}: no alive node has {where.own}, which tenant {names} has for its own: "
        "its pools have no slots and its tasks wait until one joins"
    )


def _promise_problems(where: _Where, group: str, claims: Sequence[Claim], size: GroupSize) -> Iterator[str]:
    promised = sum(claim.guarantee for claim in claims)
    if promised > size.live:
        giver = "the live cluster gives" if where.own is None else f"the live nodes with {where.own} give"
        yield (
            f"cluster {where.name}, group {group}: guarantees of {promised} slots; "
            f"{giver} {size.live} ({size.why})"
        )


def _pool_problems(
    pool: PlannedPool,
    existing: ExistingPool | None,
    request: tuple[int, str] | None,
    slot: Resources,
) -> Iterator[str]:
    if pool.change is Change.REFUSED and existing is not None and not existing.is_ours:
        yield f"pool {pool.name}: exists, but is not of our making, so it stays as it is; delete or rename it"
    elif pool.change is Change.REFUSED:
        yield (
            f"pool {pool.name}: the slot is now {slot}, but tasks hold {pool.occupied} slots "
            "of the old shape; it stays as it is until they have ended"
        )
    if request is not None and pool.most is not None and request[0] > pool.most:
        yield (
            f"pool {pool.name}: task {request[1]} asks for {request[0]} slots, "
            f"the pool can have {pool.most} at most: it would wait for ever"
        )


def _leftovers(now: Now) -> Iterator[PlannedPool]:
    """Pools of ours whose tenant or group is gone: closed while tasks hold slots, then deleted."""
    for name, pool in sorted(now.leftovers.items()):
        if pool.occupied:
            change = Change.UPDATE if pool.slots else Change.NONE
            why = "no tenant of the file has it; tasks still hold slots"
        else:
            change, why = Change.DELETE, "no tenant of the file has it"
        yield PlannedPool(name, pool.slots, 0, pool.occupied, why, pool.description, change)
