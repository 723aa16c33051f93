"""The tenants' pools against the plan that ``pools sync`` would write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning
from airflow_provider_raytenant.domain.pausing import pauses_in
from airflow_provider_raytenant.domain.pool_rows import (
    Change,
    ExistingPool,
    PlannedPool,
    PoolPlan,
    possible_pools,
)
from airflow_provider_raytenant.domain.tenants import TenantFile

SYNC: Final = "Run `airflow raytenant pools sync`, or the controller, which does so all the time."

_Owner = tuple[str, str]


def judge_pools(file: TenantFile, plan: PoolPlan, existing: Mapping[str, ExistingPool]) -> Iterator[Finding]:
    """A line for each pool of the plan, and one for each of its problems."""
    owners = _owners(file)
    for pool in plan.pools:
        yield _of(owners.get(pool.name), _judge(pool, existing.get(pool.name)))
    for problem in plan.problems:
        subject, _, text = problem.partition(": ")
        kind, _, name = subject.partition(" ")
        if kind == "pool":
            advice = "Delete or rename the pool, or change the tenant's name."
            if "asks for" in text:
                advice = "Make the task smaller, raise the tenant's limit, or start more nodes."
            elif "old shape" in text:
                advice = "Wait until these tasks have ended, or stop them with `airflow raytenant jobs stop`."
            yield _of(owners.get(name), failure("pool", f"{name}: {text}", advice))
        else:
            cluster, _, group = name.partition(", ")
            yield replace(
                failure(
                    "guarantees",
                    f"{group}: {text}",
                    "Lower guarantees in the tenant file, or start more nodes.",
                ),
                cluster=cluster,
            )


def _judge(pool: PlannedPool, now: ExistingPool | None) -> Finding:
    if now is None:
        return failure("pool", f"{pool.name} is missing: tasks that name it wait for ever", SYNC)
    if pool.change is Change.DELETE:
        return warning("leftover pool", f"{pool.name}: {pool.why}", SYNC)
    if not now.include_deferred and now.is_ours:
        return failure(
            "pool",
            f"{pool.name} does not count deferred tasks (include_deferred): it holds nothing back",
            SYNC,
        )
    if pool.change is Change.UPDATE and now.description != pool.description:
        return warning("pool", f"{pool.name} has an old description", SYNC)
    if pool.change is Change.REFUSED:
        return warning("pool", f"{pool.name} stays as it is, with {now.slots} slots", "See the next line.")
    pauses = sorted(pauses_in(pool.description))
    if pauses:
        return warning(
            "pool",
            f"{pool.name} is paused with {' and '.join(map(str, pauses))}: nothing new starts",
            "End it with " + " and ".join(f"`airflow raytenant resume {pause.name}`." for pause in pauses),
        )
    if pool.most == 0:
        return warning(
            "pool",
            f"{pool.name} can have no slot: its tasks wait",
            "Raise the tenant's limit, or start nodes.",
        )
    # Another size is no trouble: sizes follow what waits. Whether a controller lives is a check of its own.
    soon = f" ({pool.wanted} at the next sync)" if now.slots != pool.wanted else ""
    return ok("pool", f"{pool.name}: slots {now.slots}{soon}, held {now.occupied}, deferred tasks counted")


def _of(owner: _Owner | None, finding: Finding) -> Finding:
    if owner is None:
        return finding
    return replace(finding, cluster=owner[0], tenant=owner[1])


def _owners(file: TenantFile) -> dict[str, _Owner]:
    """(cluster, tenant) by name of pool."""
    return {pool.name: (pool.tenant.cluster, pool.tenant.name) for pool in possible_pools(file)}
