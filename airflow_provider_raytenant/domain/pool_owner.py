"""Whose a pool is, by its name and the tenant file. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_raytenant.domain.tenants import PoolKind, Tenant, TenantFile


@dataclass(frozen=True)
class PoolOwner:
    """``limit``: the most slots that the file lets the pool have; ``None`` is no limit."""

    tenant: Tenant
    limit: int | None


def owner_of(file: TenantFile, pool: str) -> PoolOwner | None:
    """The tenant that has the pool, or had it: one that the file dropped stays while tasks are in it."""
    for tenant in file.tenants.values():
        cluster = file.clusters[tenant.cluster]
        for group in cluster.groups:
            for kind in PoolKind:
                if tenant.pool(group, cluster.default_group, kind) == pool:
                    limits = [tenant.share("limit", group, cluster.default_group)]
                    if kind is PoolKind.BACKFILL:
                        limits.append(tenant.backfill_limit(group, cluster.default_group))
                    return PoolOwner(
                        tenant, min((limit for limit in limits if limit is not None), default=None)
                    )
    return None
