"""Whose a pool is, by its name and the tenant file. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_raytenant.domain.pool_rows import possible_pools
from airflow_provider_raytenant.domain.tenants import PoolKind, Tenant, TenantFile


@dataclass(frozen=True)
class PoolOwner:
    """``limit``: the most slots that the file lets the pool have; ``None`` is no limit."""

    tenant: Tenant
    limit: int | None


def owner_of(file: TenantFile, pool: str) -> PoolOwner | None:
    """The tenant that has the pool, or had it: one that the file dropped stays while tasks are in it."""
    own = next((one for one in possible_pools(file) if one.name == pool), None)
    if own is None:
        return None
    default_group = file.clusters[own.tenant.cluster].default_group
    limits = [own.tenant.share("limit", own.group, default_group)]
    if own.kind is PoolKind.BACKFILL:
        limits.append(own.tenant.backfill_limit(own.group, default_group))
    return PoolOwner(own.tenant, min((limit for limit in limits if limit is not None), default=None))
