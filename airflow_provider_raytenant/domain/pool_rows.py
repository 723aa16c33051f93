"""The pools of the tenants as rows: as they are, as they should be, and which of them there are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pausing import Target, pauses_in, with_pauses
from airflow_provider_raytenant.domain.pool_sizes import PoolSize
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import Cluster, PoolKind, Tenant, TenantFile

MARK: Final = "Made by raytenant"
"""How the description of a pool of ours begins. No other pool is ever touched."""

_PLACE_IN_DESCRIPTION = re.compile(r", group (\S+) of ([^,;\s]+)[,;]")
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

    @property
    def place(self) -> tuple[str, str] | None:
        """Cluster and group whose slots its tasks hold; ``None`` where the description does not say."""
        found = _PLACE_IN_DESCRIPTION.search(self.description) if self.is_ours else None
        return (found[2], found[1]) if found is not None else None


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
    """One row of the plan: ``now`` is ``None`` where the pool does not exist yet.

    :param most: slots that the pool could ever have; ``None`` for one that nobody has any more.
    :param waiting: slots that waiting tasks ask for.
    :param capped: waiting tasks that ask for more than ``most``.
    :param shares: whose slots it shares with the other pools that say the same: ``shared/cpu``.
    """

    name: str
    now: int | None
    wanted: int
    occupied: int
    why: str
    description: str
    change: Change
    most: int | None = None
    waiting: int = 0
    capped: int = 0
    shares: str = ""

    @property
    def drains(self) -> int:
        """Slots that tasks hold above the size: nothing starts until they have ended."""
        return max(0, self.occupied - self.wanted)


@dataclass(frozen=True)
class PoolPlan:
    """Every pool of ours, and what cannot be as the file asks."""

    pools: tuple[PlannedPool, ...]
    problems: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[PlannedPool, ...]:
        """The rows that a sync writes."""
        return tuple(pool for pool in self.pools if pool.change in WRITES)


@dataclass(frozen=True)
class Now:
    """What is so at this moment, by pool; see :func:`~airflow_provider_raytenant.domain.pool_plan.plan`."""

    existing: Mapping[str, ExistingPool]
    demand: Mapping[str, Demand] = field(default_factory=dict)
    uncounted: Mapping[str, int] = field(default_factory=dict)
    largest_request: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    pauses: frozenset[Target] = frozenset()
    leftovers: Mapping[str, ExistingPool] = field(default_factory=dict)
    """Pools of ours whose tenant or group the file does not have any more."""

    def pauses_of(self, tenant: Tenant) -> frozenset[Target]:
        """What closes this tenant's pools."""
        return self.pauses & targets_of(tenant)

    def is_wanted(self, pool: str) -> bool:
        """Whether it is ours, and tasks are in it or wait for it."""
        found = self.existing.get(pool)
        return found is not None and found.is_ours and bool(found.occupied or self.demand.get(pool))


@dataclass(frozen=True)
class TenantPool:
    """A pool that a plan is to have."""

    name: str
    tenant: Tenant
    kind: PoolKind
    group: str


def targets_of(tenant: Tenant) -> set[Target]:
    """What may be paused so that this tenant's pools close."""
    return {Target("tenant", tenant.name), Target("cluster", tenant.cluster)}


def pauses_in_force(file: TenantFile, existing: Mapping[str, ExistingPool]) -> frozenset[Target]:
    """The pauses in force. One pool that speaks of it is enough: others may have come later.

    A tenant that has moved to another cluster has left the pause of the old one behind.
    """
    found: set[Target] = set()
    for pool in all_pools(file, Now(existing)):
        now = existing.get(pool.name)
        if now is not None and now.is_ours:
            found |= pauses_in(now.description) & targets_of(pool.tenant)
    return frozenset(found)


def possible_pools(file: TenantFile) -> Iterator[TenantPool]:
    """Pools of every kind, enabled now or not: one that is not may be there from before."""
    for tenant in file.tenants.values():
        cluster = file.clusters[tenant.cluster]
        for group in cluster.groups:
            for kind in PoolKind:
                yield TenantPool(tenant.pool(group, cluster.default_group, kind), tenant, kind, group)


def all_pools(file: TenantFile, now: Now) -> Iterator[TenantPool]:
    """All pools of the file's tenants, whether their cluster could be read or not."""
    for name, cluster in file.clusters.items():
        for tenant in file.tenants_of(name):
            for group in cluster.groups:
                if takes_part(tenant, group, cluster):
                    yield from pools_of(tenant, group, cluster, now)


def pools_of(tenant: Tenant, group: str, cluster: Cluster, now: Now) -> Iterator[TenantPool]:
    """The tenant's pools of a group, the main one first.

    One that the file no longer asks for stays while tasks are in it: Airflow does not move them.
    """
    enabled = tenant.pools(group, cluster.default_group)
    for kind in PoolKind:
        name = tenant.pool(group, cluster.default_group, kind)
        if kind in enabled or now.is_wanted(name):
            yield TenantPool(name, tenant, kind, group)


def takes_part(tenant: Tenant, group: str, cluster: Cluster) -> bool:
    """Every tenant has a pool of the default group, and of others unless its limit there is 0."""
    if group == cluster.default_group:
        return True
    limit = tenant.share("limit", group, cluster.default_group)
    return limit is None or limit > 0


_FOR: Final = {PoolKind.MAIN: "", PoolKind.LARGE: ", large requests", PoolKind.BACKFILL: ", backfills"}


def planned_pool(pool: TenantPool, size: PoolSize, why: str, slot: Resources, now: Now) -> PlannedPool:
    """The row of a pool that is to have this size.

    :param why: what decided.
    :param slot: what one slot of its group is.
    """
    found, pauses = now.existing.get(pool.name), now.pauses_of(pool.tenant)
    tenant = pool.tenant
    description = with_pauses(
        f"{MARK} for tenant {tenant.name}, group {pool.group} of {tenant.cluster}{_FOR[pool.kind]}; "
        f"one slot is {slot}; "
        "`airflow raytenant pools sync` writes it",
        pauses,
    )
    if found is None:
        change = Change.CREATE
    elif not found.is_ours or slot_changed_while_occupied(found, slot):
        change = Change.REFUSED
    elif (found.slots, found.include_deferred, found.description) == (size.slots, True, description):
        change = Change.NONE
    else:
        change = Change.UPDATE
    return PlannedPool(
        name=pool.name,
        now=None if found is None else found.slots,
        wanted=size.slots,
        occupied=0 if found is None else found.occupied,
        why=why,
        description=description,
        change=change,
        most=size.most,
        waiting=size.waiting,
        capped=size.capped,
    )


def slot_changed_while_occupied(pool: ExistingPool, slot: Resources) -> bool:
    """Slots of the old shape that tasks hold would be counted as slots of the new one."""
    written = _SLOT_IN_DESCRIPTION.search(pool.description)
    return pool.is_ours and pool.occupied > 0 and written is not None and written[1] != str(slot)
