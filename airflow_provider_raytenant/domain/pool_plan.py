"""What Airflow's pools should be, from the tenant file, the nodes, the pools there are, what waits.

Pure: reading and writing pools is the business of :mod:`airflow_provider_raytenant.pools`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from airflow_provider_raytenant.domain.capacity import GroupSize, Node, group_sizes
from airflow_provider_raytenant.domain.dedication import cluster_of, distinct, is_of, nodes_of
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_sizes import Claim, size_pools
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import Cluster, DedicatedNodes, Tenant, TenantFile

MARK: Final = "Made by raytenant"
"""How the description of a pool of ours begins. No other pool is ever touched."""

_SLOT_IN_DESCRIPTION = re.compile(r"; one slot is (.+?); ")


@dataclass(frozen=True)
class ExistingPool:
    """A pool as it is. ``occupied`` counts slots of queued, running and deferred tasks."""

    name: str
    slots: int
    description: str = ""
    include_deferred: bool = True
    occupied: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether we made it."""
        return self.description.startswith(MARK)


@dataclass(frozen=True)
class PoolsNow:
    """All pools by name, ours or not, and what waits for those of ours."""

    existing: Mapping[str, ExistingPool]
    demand: Mapping[str, Demand] = field(default_factory=dict)


class Change(StrEnum):
    """What has to be done about a pool."""

    NONE = "none"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REFUSED = "refused"


WRITES = frozenset({Change.CREATE, Change.UPDATE, Change.DELETE})


@dataclass(frozen=True)
class PlannedPool:
    """One row of the plan: ``now`` is ``None`` where the pool does not exist yet."""

    name: str
    now: int | None
    wanted: int
    occupied: int
    why: str
    description: str
    change: Change


@dataclass(frozen=True)
class PoolPlan:
    """Every pool of ours, and what cannot be as the file asks."""

    pools: tuple[PlannedPool, ...]
    problems: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[PlannedPool, ...]:
        """The rows that a sync writes."""
        return tuple(pool for pool in self.pools if pool.change in WRITES)


@dataclass
class _Draft:
    pools: list[PlannedPool] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Now:
    """What is so at this moment, by pool."""

    existing: Mapping[str, ExistingPool]
    demand: Mapping[str, Demand]
    uncounted: Mapping[str, int]
    largest_request: Mapping[str, tuple[int, str]]


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
    draft, now = _Draft(), _Now(existing, demand or {}, uncounted or {}, largest_request)
    planned: set[str] = set()
    for cluster_name, cluster in file.clusters.items():
        tenants = file.tenants_of(cluster_name)
        for group in cluster.groups:
            takers = [tenant for tenant in tenants if _takes_part(tenant, group, cluster)]
            planned |= {tenant.pool(group, cluster.default_group) for tenant in takers}
        sets = distinct(tenant.nodes for tenant in tenants)
        for own in [None, *sets] if cluster_name in nodes else ():
            members = [tenant for tenant in tenants if is_of(tenant.nodes, own)]
            alive = nodes_of(own, sets, nodes[cluster_name])
            where = _Where(cluster_name, cluster_of(own, cluster), own)
            _plan_set(draft, where, members, alive, now)
    if set(file.clusters) <= set(nodes):
        # Only when every cluster was read is a pool that nobody claims surely a leftover.
        draft.pools += _leftovers(existing, planned)
    return PoolPlan(tuple(draft.pools), tuple(draft.problems))


def _plan_set(
    draft: _Draft,
    where: _Where,
    tenants: Sequence[Tenant],
    nodes: Sequence[Node],
    now: _Now,
) -> None:
    """The pools of the tenants that share these nodes: the common ones, or the same dedicated ones."""
    cluster, default_group = where.cluster, where.cluster.default_group
    are_missing = where.own is not None and not nodes and where.own.autoscale is None
    if are_missing:
        # Said once, instead of for every guarantee and every task.
        draft.problems.append(_nodes_problem(where, tenants))
    for group, size in group_sizes(cluster, nodes).items():
        takers = {t.pool(group, default_group): t for t in tenants if _takes_part(t, group, cluster)}
        slot = cluster.groups[group].slot.resources
        claims = [_claim(tenant, name, group, cluster, now) for name, tenant in takers.items()]
        if not are_missing:
            draft.problems += _promise_problems(where, group, claims, size)
        for name, sized in size_pools(size.slots, claims).items():
            why = f"{sized.why}; {_whole(size, where, group)}"
            pool = _planned(name, sized.slots, why, takers[name], group, slot, now.existing.get(name))
            draft.pools.append(pool)
            request = None if are_missing else now.largest_request.get(name)
            draft.problems += _pool_problems(pool, sized.most, now.existing.get(name), request, slot)


def _takes_part(tenant: Tenant, group: str, cluster: Cluster) -> bool:
    """Every tenant has a pool of the default group, and of others unless its limit there is 0."""
    if group == cluster.default_group:
        return True
    limit = tenant.share("limit", group, cluster.default_group)
    return limit is None or limit > 0


def _claim(tenant: Tenant, name: str, group: str, cluster: Cluster, now: _Now) -> Claim:
    pool = now.existing.get(name)
    occupied = pool.occupied if pool is not None else 0
    if pool is not None and _slot_changed_while_occupied(pool, cluster.groups[group].slot.resources):
        # It stays as it is: what is open there may be taken at any moment.
        occupied = max(occupied, pool.slots)
    return Claim(
        pool=name,
        guarantee=tenant.share("guarantee", group, cluster.default_group) or 0,
        weight=tenant.weight,
        limit=tenant.share("limit", group, cluster.default_group),
        occupied=occupied,
        uncounted=now.uncounted.get(name, 0),
        demand=now.demand.get(name, Demand()),
    )


def _whole(size: GroupSize, where: _Where, group: str) -> str:
    whole = f"{where.name}/{group}: {size.slots} ({size.why})"
    return whole if where.own is None else f"{whole} with {where.own}"


def _planned(
    name: str, wanted: int, why: str, tenant: Tenant, group: str, slot: Resources, pool: ExistingPool | None
) -> PlannedPool:
    description = (
        f"{MARK} for tenant {tenant.name}, group {group}; one slot is {slot}; "
        "`airflow raytenant pools sync` writes it"
    )
    if pool is None:
        return PlannedPool(name, None, wanted, 0, why, description, Change.CREATE)
    if not pool.is_ours or _slot_changed_while_occupied(pool, slot):
        change = Change.REFUSED
    elif (pool.slots, pool.include_deferred, pool.description) == (wanted, True, description):
        change = Change.NONE
    else:
        change = Change.UPDATE
    return PlannedPool(name, pool.slots, wanted, pool.occupied, why, description, change)


def _slot_changed_while_occupied(pool: ExistingPool, slot: Resources) -> bool:
    """Slots of the old shape that tasks hold would be counted as slots of the new one."""
    written = _SLOT_IN_DESCRIPTION.search(pool.description)
    return pool.is_ours and pool.occupied > 0 and written is not None and written[1] != str(slot)


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
    most: int,
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
    if request is not None and request[0] > most:
        yield (
            f"pool {pool.name}: task {request[1]} asks for {request[0]} slots, "
            f"the pool can have {most} at most: it would wait for ever"
        )


def _leftovers(existing: Mapping[str, ExistingPool], planned: set[str]) -> Iterator[PlannedPool]:
    """Pools of ours whose tenant or group is gone: closed while tasks hold slots, then deleted."""
    for name, pool in sorted(existing.items()):
        if not pool.is_ours or name in planned:
            continue
        if pool.occupied:
            change = Change.UPDATE if pool.slots else Change.NONE
            why = "no tenant of the file has it; tasks still hold slots"
        else:
            change, why = Change.DELETE, "no tenant of the file has it"
        yield PlannedPool(name, pool.slots, 0, pool.occupied, why, pool.description, change)
