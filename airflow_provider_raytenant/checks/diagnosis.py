"""All checks: the tenant file, Airflow, and every cluster side by side with its tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_raytenant import tenant_file
from airflow_provider_raytenant.checks.airflow_side import (
    AirflowSettings,
    judge_controllers,
    judge_scheduler,
    judge_teams,
    judge_triggerers,
)
from airflow_provider_raytenant.checks.cluster import JOB_PATIENCE, ClusterLook, look_at_cluster
from airflow_provider_raytenant.checks.finding import Finding, failure, ok
from airflow_provider_raytenant.checks.policy import backfill_routes, judge_policy, look_at_policy
from airflow_provider_raytenant.checks.pools import judge_pools
from airflow_provider_raytenant.control.threads import ask
from airflow_provider_raytenant.database.backfills import read_backfill_tasks
from airflow_provider_raytenant.database.heartbeats import (
    CONTROLLER,
    CONTROLLER_ONCE,
    TRIGGERER,
    read_heartbeats,
)
from airflow_provider_raytenant.database.pools import read_largest_requests, read_pools
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.tenants import Tenant, TenantFile
from airflow_provider_raytenant.domain.wording import count
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError, RequestError, TenantFileError


@dataclass(frozen=True)
class Scope:
    """What is looked at: everything, or one cluster, or one tenant and its cluster. ``jobs``: run the job."""

    cluster: str | None = None
    tenant: str | None = None
    jobs: bool = True


async def diagnose(path: str | None, scope: Scope) -> list[Finding]:
    """Every finding: Airflow's own first, then each cluster with its tenants, in the file's order.

    :param path: of the tenant file; default: the configured one.
    :raises RequestError: the scope names what is not in the file.
    """
    file: TenantFile | None = None
    try:
        path = path or tenant_file.config_file()
        file = tenant_file.load(path)
    except TenantFileError as error:
        wrong = [
            failure("tenant file", f"{error.file}: {p.key_path}: found {p.found}", f"Allowed: {p.allowed}.")
            for p in error.problems
        ]
        return wrong + await _airflow(None, None)
    _check_scope(file, scope)
    right = ok(
        "tenant file", f"{path}: {count(len(file.tenants), 'tenant')}, {count(len(file.clusters), 'cluster')}"
    )
    looks = await _clusters(file, scope)
    slots, pools = await _pools(file, looks)
    airflow = await _airflow(file, slots)
    backfills = await _backfills(file, path, scope)
    lines = [finding for look in looks for finding in look.findings] + pools + backfills
    wanted = [line for line in lines if scope.tenant is None or line.tenant in (None, scope.tenant)]
    return [right, *airflow, *_in_order(wanted, file, [look.name for look in looks])]


async def _clusters(file: TenantFile, scope: Scope) -> list[ClusterLook]:
    names = [name for name in file.clusters if scope.cluster in (None, name)]
    if scope.tenant is not None:
        names = [file.tenants[scope.tenant].cluster]

    def tenants(cluster: str) -> dict[str, Tenant]:
        return {
            name: tenant
            for name, tenant in file.tenants.items()
            if tenant.cluster == cluster and scope.tenant in (None, name)
        }

    patience = JOB_PATIENCE if scope.jobs else None
    return await asyncio.gather(
        *(
            look_at_cluster(name, file.clusters[name], file.deployment, tenants(name), job_patience=patience)
            for name in names
        )
    )


async def _pools(file: TenantFile, looks: Sequence[ClusterLook]) -> tuple[int | None, list[Finding]]:
    """Slots of all pools that the clusters' nodes give, and a line for each pool."""
    nodes = {look.name: look.nodes for look in looks if look.nodes is not None}
    if not nodes:
        return None, []
    try:
        now = await ask(read_pools)
        requests = await ask(read_largest_requests)
    except DatabaseUnavailableError as error:
        return None, [failure("pools", str(error), "Look at Airflow's database.")]
    planned = plan(file, nodes, now.existing, requests, now.demand)
    return sum(pool.wanted for pool in planned.pools), list(judge_pools(file, planned, now.existing))


async def _backfills(file: TenantFile, path: str, scope: Scope) -> list[Finding]:
    """Whether they get into pools of their own, where a tenant has one."""
    routes = [
        route
        for route in backfill_routes(file)
        if scope.cluster in (None, route.cluster) and scope.tenant in (None, route.tenant)
    ]
    if not routes:
        return []
    try:
        configured = tenant_file.config_file()
    except TenantFileError:
        configured = ""
    look = look_at_policy(routes)
    pools = {pool for route in routes for pool in (*route.sources, route.target)}
    try:
        tasks = await ask(lambda: read_backfill_tasks(pools))
    except DatabaseUnavailableError:
        tasks = []  # That it is away is told by others.
    return list(judge_policy(routes, look, tasks, same_file=Path(configured) == Path(path)))


async def _airflow(file: TenantFile | None, slots: int | None) -> list[Finding]:
    settings = read_settings()
    found = [judge_scheduler(settings, len(file.tenants) if file else 0)]
    try:
        triggerers = await ask(lambda: read_heartbeats(TRIGGERER))
        controllers = await ask(lambda: read_heartbeats(CONTROLLER))
        rounds = await ask(lambda: read_heartbeats(CONTROLLER_ONCE))
        found += [judge_triggerers(triggerers, settings, slots), judge_controllers(controllers, rounds)]
    except DatabaseUnavailableError as error:
        found.append(failure("database", str(error), "Look at Airflow's database."))
    return [*found, judge_teams(settings)]


def read_settings() -> AirflowSettings:
    """Airflow's configuration as this process has it."""
    from airflow.configuration import conf

    return AirflowSettings(
        max_tis_per_query=conf.getint("scheduler", "max_tis_per_query"),
        parallelism=conf.getint("core", "parallelism"),
        triggerer_capacity=conf.getint("triggerer", "capacity"),
        triggerer_threshold=conf.getfloat("triggerer", "triggerer_health_check_threshold"),
        multi_team=conf.getboolean("core", "multi_team"),
    )


def _check_scope(file: TenantFile, scope: Scope) -> None:
    for option, name, known in (
        ("--cluster", scope.cluster, file.clusters),
        ("--tenant", scope.tenant, file.tenants),
    ):
        if name is not None and name not in known:
            raise RequestError(f"{option}: found {name!r}; allowed: {', '.join(sorted(known))}")
    if scope.tenant is not None and scope.cluster not in (None, file.tenants[scope.tenant].cluster):
        raise RequestError(
            f"--cluster: found {scope.cluster!r}; allowed: the tenant's, {file.tenants[scope.tenant].cluster}"
        )


def _in_order(lines: Iterable[Finding], file: TenantFile, clusters: Sequence[str]) -> list[Finding]:
    """Airflow's, then cluster by cluster: its own, then its tenants'; each as they came."""
    tenants = list(file.tenants)

    def place(line: Finding) -> tuple[int, int]:
        cluster = -1 if line.cluster is None else clusters.index(line.cluster)
        return cluster, -1 if line.tenant is None else tenants.index(line.tenant)

    return sorted(lines, key=place)
