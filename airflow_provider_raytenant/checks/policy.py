"""Whether backfills get into the pools that the tenant file gives them.

Airflow calls a cluster policy only where an ``airflow_local_settings.py`` defines or imports one, and says
nothing where it does not. What this process has is looked at directly. It may not be the one that makes task
instances; what other processes have is seen in what they made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

from airflow_provider_raytenant.checks.finding import Finding, ok, warning
from airflow_provider_raytenant.database.backfills import BackfillTasks
from airflow_provider_raytenant.domain.tenants import Cluster, PoolKind, Tenant, TenantFile
from airflow_provider_raytenant.domain.wording import count

MODULE: Final = "airflow_local_settings"
LINE: Final = "from airflow_provider_raytenant.policy import task_instance_mutation_hook"
WHERE: Final = "of the scheduler, the API server and wherever `airflow backfill create` runs"
_CHECK: Final = "backfill"
_RUN_ID: Final = "backfill__2026-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class BackfillRoute:
    """Where tasks of a tenant's backfills come from and go to, for one group of its cluster."""

    tenant: str
    cluster: str
    sources: tuple[str, ...]
    target: str
    limit: int | None

    def holds(self, slots: int) -> bool:
        """Whether the backfill pool may ever be so large."""
        return self.limit is None or slots <= self.limit


@dataclass(frozen=True)
class PolicyLook:
    """What a process of Airflow does with a new task instance.

    :param folder: where Airflow looks for the settings, ``/opt/airflow/config``.
    :param settings_file: of ``airflow_local_settings``, where there is one.
    :param called: whether Airflow calls a policy for task instances at all.
    :param pools: by main pool, where a backfill's task went that was tried.
    :param error: of the policy, when it was tried.
    """

    folder: str
    settings_file: str | None
    called: bool
    pools: Mapping[str, str]
    error: str = ""


def backfill_routes(file: TenantFile) -> list[BackfillRoute]:
    """Of the tenants with ``backfill``, in the file's order."""
    return [
        route
        for tenant in file.tenants.values()
        if tenant.backfill is not None
        for route in _routes(tenant, file.clusters[tenant.cluster])
    ]


def _routes(tenant: Tenant, cluster: Cluster) -> Iterator[BackfillRoute]:
    for group in cluster.groups:
        pools = tenant.pools(group, cluster.default_group)
        target = pools.pop(PoolKind.BACKFILL)
        limit = tenant.backfill_limit(group, cluster.default_group)
        yield BackfillRoute(tenant.name, tenant.cluster, tuple(pools.values()), target, limit)


def look_at_policy(routes: Iterable[BackfillRoute]) -> PolicyLook:
    """Try the policy of this process on task instances that exist nowhere; the database is not asked."""
    from airflow import settings
    from airflow.configuration import AIRFLOW_HOME

    spec = find_spec(MODULE)
    hook = settings.task_instance_mutation_hook
    look = PolicyLook(
        folder=f"{AIRFLOW_HOME}/config",
        settings_file=None if spec is None else spec.origin,
        called=not getattr(hook, "is_noop", False),
        pools={},
    )
    if not look.called:
        return look
    tried: dict[str, str] = {}
    try:
        for route in routes:
            if route.holds(1):
                tried[route.sources[0]] = _tried(hook, route.sources[0])
    except Exception as error:  # noqa: BLE001 - It is not our code, and what it raises is the finding.
        return replace(look, pools=tried, error=f"{type(error).__name__}: {error}")
    return replace(look, pools=tried)


def _tried(hook: Any, pool: str) -> str:
    """The pool that a backfill's task of this pool and of one slot ends up in."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.serialization.definitions.baseoperator import SerializedBaseOperator
    from airflow.utils.types import DagRunType

    task = SerializedBaseOperator(task_id="raytenant_doctor")
    task.pool, task.pool_slots = pool, 1
    run = DagRun(dag_id=task.dag_id, run_id=_RUN_ID, run_type=DagRunType.BACKFILL_JOB, conf={})
    # As Airflow makes one: the policy sees it once without its run, and once with it.
    ti = TaskInstance(task, dag_version_id=None, run_id=_RUN_ID)
    hook(ti, dag_run=run)
    return str(ti.pool)


def judge_policy(
    routes: Sequence[BackfillRoute], look: PolicyLook, tasks: Sequence[BackfillTasks], same_file: bool = True
) -> Iterator[Finding]:
    """A line for this process, and one for each pool with tasks that should be elsewhere.

    :param tasks: unfinished ones of backfill runs in the pools of the routes.
    :param same_file: whether ``[raytenant] config_file`` names the file that the routes are from.
    """
    if not routes:
        return
    yield _judge_process(routes, look, tasks, same_file)
    for route in routes:
        for pool in route.sources:
            stray = [one for one in tasks if one.pool == pool and route.holds(one.slots)]
            if stray:
                found = f"{_tasks(stray)} in {pool}, although {route.target} could hold them"
                advice = (
                    f"What made them does not have the policy: put `{LINE}` into {MODULE}.py {WHERE}, and "
                    "restart these. Tasks from before move when they are cleared."
                )
                yield replace(warning(_CHECK, found, advice), cluster=route.cluster, tenant=route.tenant)


def _judge_process(
    routes: Sequence[BackfillRoute], look: PolicyLook, tasks: Sequence[BackfillTasks], same_file: bool
) -> Finding:
    names = ", ".join(dict.fromkeys(route.tenant for route in routes))
    stays = [route for route in routes if look.pools.get(route.sources[0], route.target) != route.target]
    if look.called and not look.error and not stays:
        return ok(_CHECK, f"the policy of this process moves backfills of {names} to pools of their own")
    moved = [one for one in tasks if one.pool in {route.target for route in routes}]
    if not look.called:
        if moved:
            return ok(_CHECK, f"no policy in this process, but where it counts: {_tasks(moved)} in place")
        why = f"there is no {MODULE}.py"
        if look.settings_file is not None:
            why = f"{look.settings_file} has no task_instance_mutation_hook"
        file = look.settings_file or f"{look.folder}/{MODULE}.py"
        return warning(
            _CHECK,
            f"Airflow calls no policy in this process ({why}), and says nothing of it: backfills of {names} "
            "stay in the pools of live tasks, behind these",
            f"Put `{LINE}` into {file} {WHERE}, and restart these.",
        )
    where = look.settings_file or "a plugin's entry point (airflow.policy)"
    if look.error:
        return warning(
            _CHECK,
            f"the policy in {where} fails on a backfill's task of this provider: {look.error}",
            "Mend it: where it raises, Airflow makes no task instances.",
        )
    left = ", ".join(f"{route.sources[0]} of {route.tenant}" for route in stays)
    found = f"the policy in {where} leaves a backfill's task in {left}"
    if not same_file:
        return warning(_CHECK, found, "It reads the file of [raytenant] config_file: let that be this one.")
    return warning(
        _CHECK,
        found,
        "Call `airflow_provider_raytenant.policy.task_instance_mutation_hook(task_instance, dag_run)` "
        f"from it, {WHERE}, and restart these.",
    )


def _tasks(found: Sequence[BackfillTasks]) -> str:
    return f"{count(sum(one.count for one in found), 'task')} of backfills ({found[0].dag_id})"
