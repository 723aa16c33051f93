"""Gathers what is known of a task that waits: from Airflow's database, from Ray, from the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from airflow.configuration import conf

from airflow_provider_raytenant.control.clusters import Answers, ClusterLook, look
from airflow_provider_raytenant.database.demand import TaskLimits, read_task_limits
from airflow_provider_raytenant.database.heartbeats import (
    CONTROLLER,
    CONTROLLER_ONCE,
    TRIGGERER,
    read_heartbeats,
)
from airflow_provider_raytenant.database.waiting import SCHEDULER, Situation, read_situation
from airflow_provider_raytenant.domain.pool_owner import PoolOwner, owner_of
from airflow_provider_raytenant.domain.sweep import OwnJob, short_id, uncounted
from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.domain.waiting_facts import (
    Facts,
    Holder,
    JobFacts,
    PlanFacts,
    Processes,
    Settings,
    TaskFacts,
)
from airflow_provider_raytenant.pools.sync import ClusterState, DagFacts, plan_pools

_ASKS_RAY: Final = frozenset({"scheduled", "running", "deferred"})
"""States of a task in which Ray has something to say about it."""


def gather_facts(
    file: TenantFile, dag_id: str, run_id: str, task_id: str, map_index: int | None = None
) -> Facts:
    """All that can be known now; a cluster that gives no answer is part of it.

    :raises RequestError: there is no such task.
    :raises DatabaseUnavailableError: Airflow's database gives no answer.
    """
    limits = read_task_limits()
    found = read_situation(dag_id, run_id, task_id, map_index, limits)
    owner = owner_of(file, found.task.pool)
    answers = asyncio.run(look(file, _clusters(file, found.task, owner)))
    jobs = _Jobs(answers)
    own = jobs.of(found.task.ti_id)
    tenant = owner.tenant.name if owner is not None else own.identity.tenant if own is not None else None
    return Facts(
        now=_now(),
        task=found.task,
        run=found.run,
        upstream=found.upstream,
        past=found.past,
        pool=found.pool,
        tenant=tenant,
        plan=_plan(file, found, owner, answers, limits),
        silent=answers.failures,
        line=found.line,
        holders=[jobs.with_job(holder) for holder in found.holders],
        job=jobs.facts(own),
        failure=found.failure,
        processes=_processes(),
        settings=Settings(
            conf.getint("scheduler", "max_tis_per_query"), conf.getint("core", "parallelism"), found.executing
        ),
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _clusters(file: TenantFile, task: TaskFacts, owner: PoolOwner | None) -> list[str]:
    """Those that know something of the task: the one of its tenant, or any, where that is not known."""
    if task.state not in _ASKS_RAY:
        return []
    if owner is not None:
        return [owner.tenant.cluster]
    return list(file.clusters) if task.is_ours and task.state != "scheduled" else []


class _Jobs:
    """The jobs of the clusters that answered, by the UUID of their try."""

    def __init__(self, answers: Answers[ClusterLook]) -> None:
        self._where: dict[str, tuple[OwnJob, ClusterLook]] = {}
        for cluster in answers.found.values():
            for job in cluster.jobs.own:
                self._where[job.identity.ti_id] = (job, cluster)
                # A later try may have adopted the job of an older one.
                now = cluster.jobs.tasks.by_key.get(job.key)
                if now is not None and job.live:
                    self._where.setdefault(now.ti_id, (job, cluster))

    def of(self, ti_id: str) -> OwnJob | None:
        found = self._where.get(ti_id)
        return found[0] if found is not None else None

    def facts(self, job: OwnJob | None) -> JobFacts | None:
        if job is None:
            return None
        _, cluster = self._where[job.identity.ti_id]
        page = cluster.jobs.endpoint.job_page(job.submission_id)
        return JobFacts(short_id(job), cluster.jobs.cluster, job.info, page)

    def with_job(self, holder: Holder) -> Holder:
        job = self.of(holder.ti_id)
        if job is None:
            return holder
        return replace(holder, job=short_id(job), tenant=job.identity.tenant, ray=job.info.status.value)


def _plan(
    file: TenantFile,
    found: Situation,
    owner: PoolOwner | None,
    answers: Answers[ClusterLook],
    limits: TaskLimits,
) -> PlanFacts | None:
    """What a sync would do about the pool, where it is a tenant's and the tenant's cluster answers."""
    if owner is None or owner.tenant.cluster not in answers.found or found.task.state != "scheduled":
        return None
    cluster = answers.found[owner.tenant.cluster]
    held = _uncounted(cluster)
    states = {owner.tenant.cluster: ClusterState(cluster.nodes, held)}
    rows = plan_pools(file, states, DagFacts(limits=limits)).pools
    own = next((row for row in rows if row.name == found.task.pool), None)
    if own is None or own.most is None:
        return None  # The file asks for it no more.
    others = [row for row in rows if row.shares == own.shares and row.name != own.name]
    return PlanFacts(own, owner.limit, others, sum(held.get(row.name, 0) for row in (own, *others)))


def _uncounted(cluster: ClusterLook) -> Mapping[str, int]:
    return uncounted([job for job in cluster.jobs.own if job.live], cluster.jobs.tasks)


def _processes() -> Processes:
    return Processes(
        schedulers=read_heartbeats(SCHEDULER),
        triggerers=read_heartbeats(TRIGGERER),
        controllers=read_heartbeats(CONTROLLER),
        rounds=read_heartbeats(CONTROLLER_ONCE),
        scheduler_silent=conf.getfloat("scheduler", "scheduler_health_check_threshold"),
        triggerer_silent=conf.getfloat("triggerer", "triggerer_health_check_threshold"),
    )
