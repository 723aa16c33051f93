"""Airflow's cluster policy for tenants: backfills into pools of their own, mapped tasks by their own request.

In ``airflow_local_settings.py`` of the scheduler, of the API server, which makes a backfill's task instances,
and of wherever ``airflow backfill create`` and ``airflow tasks clear`` run::

    from airflow_provider_raytenant.policy import task_instance_mutation_hook

or, where there is such a hook already, call this one from it::

    from airflow_provider_raytenant import policy

    def task_instance_mutation_hook(task_instance, dag_run=None):
        policy.task_instance_mutation_hook(task_instance, dag_run)
        ...

Airflow calls it for every task instance that it makes, clears or maps, inside the scheduler's transaction: it
is cheap for those of others, asks no database, and never raises.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_raytenant.priority import LiveFirst, demoted, is_backfill

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

    from airflow_provider_raytenant.domain.job_spec import Placement
    from airflow_provider_raytenant.tenant_file import TenantView

_OURS: Final = "ray."
_log = logging.getLogger(__name__)
_told: dict[str, Any] = {}
"""The last trouble that was logged, so that it is logged once and not for each of thousands of tasks."""


def task_instance_mutation_hook(task_instance: TaskInstance, dag_run: DagRun | None = None) -> None:
    """Slots of a mapped task instance by its own request, and the backfill pool for one of a backfill.

    What decides has to be readable: literal arguments of ``expand()``. Otherwise a mapped task keeps its
    declared slots. A task whose slots the tenant's ``backfill.limit`` cannot hold stays in its pool, behind
    the live ones. It may be called any number of times.

    :param dag_run: its run; unknown while a task instance is being made.
    """
    pool = task_instance.pool
    if not isinstance(pool, str) or not pool.startswith(_OURS):
        return
    try:
        task = _sized_task(task_instance)
        backfill = is_backfill(task_instance, dag_run)
        if backfill:
            _put_behind(task_instance)
        if task is None and not backfill:
            return
        view = _view(pool)
        if view is not None:
            _apply(task_instance, view, task, backfill)
    except Exception:  # noqa: BLE001 - The scheduler would fall over whatever this does.
        _tell_once("error", pool, "Task instance %s stays as it is", task_instance, exc_info=True)


def _put_behind(ti: TaskInstance) -> None:
    """The weight of a backfill, where its rule could not know: one that runs a run of others again.

    Mapped tasks are made while such a run is under way, and only the run itself says what it is.
    """
    rule = getattr(getattr(ti, "task", None), "weight_rule", None)
    if isinstance(rule, LiveFirst) and ti.priority_weight is not None:
        ti.priority_weight = demoted(ti.priority_weight)


def _sized_task(ti: TaskInstance) -> Any:
    """The mapped task, if its instances differ in what they ask for. Rows of the database come without it."""
    task = getattr(ti, "task", None)
    if not isinstance(getattr(task, "partial_kwargs", None), dict) or ti.map_index < 0:
        return None
    from airflow_provider_raytenant.domain.mapped_request import maps_over_footprint

    return task if maps_over_footprint(_expand(task), ti.map_index) else None


def _expand(task: Any) -> Any:
    return getattr(getattr(task, "expand_input", None), "value", None)


def _apply(ti: TaskInstance, view: TenantView, task: Any, backfill: bool) -> None:
    from airflow_provider_raytenant.domain.tenants import PoolKind

    tenant, default = view.tenant, view.cluster.default_group
    group = next((g for g in view.cluster.groups if ti.pool in tenant.pools(g, default).values()), None)
    if group is None:
        return
    pools = tenant.pools(group, default)
    own = _own_placement(ti, view, task) if task is not None else None
    if own is not None and own.group == group:
        ti.pool_slots = max(1, min(task.pool_slots, own.slots))
        if ti.pool == pools.get(PoolKind.LARGE):
            # The largest of the mapped tasks chose it for all of them.
            ti.pool = pools[tenant.kind_for(ti.pool_slots, group, default)]
    limit = tenant.backfill_limit(group, default)
    if backfill and PoolKind.BACKFILL in pools and (limit is None or ti.pool_slots <= limit):
        ti.pool = pools[PoolKind.BACKFILL]


def _own_placement(ti: TaskInstance, view: TenantView, task: Any) -> Placement | None:
    from airflow_provider_raytenant.domain.mapped_request import own_placement

    return own_placement(
        view.tenant,
        view.cluster,
        view.dedicated,
        partial_kwargs=task.partial_kwargs,
        expand=_expand(task),
        map_index=ti.map_index,
    )


def _view(pool: str) -> TenantView | None:
    """The tenant that a pool's name names; ``None`` where the tenant file does not say."""
    from airflow_provider_raytenant import tenant_file
    from airflow_provider_raytenant.exceptions import TenantFileError

    try:
        file = tenant_file.config_file()
    except TenantFileError as error:
        _tell_once("file", None, "%s: backfills and mapped tasks stay as they are", error)
        return None
    try:
        stat = Path(file).stat()
        state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except OSError:
        state = None
    return _known(file, pool.split(".")[1], state)


@lru_cache(maxsize=1024)
def _known(file: str, tenant: str, state: tuple[int, ...] | None) -> TenantView | None:
    """The tenant, or that there is no telling: a broken file is not read again for every task."""
    from airflow_provider_raytenant import tenant_file
    from airflow_provider_raytenant.exceptions import TenantFileError

    try:
        return tenant_file.view(file, tenant)
    except TenantFileError as error:
        if any(problem.found == tenant_file.NO_SUCH_TENANT for problem in error.problems):
            return None  # Somebody else's pool.
        _tell_once("file", (file, state), "%s: backfills and mapped tasks stay as they are", error)
        return None


def _tell_once(about: str, what: Any, message: str, *arguments: Any, **more: Any) -> None:
    if _told.get(about, _told) != what:
        _told[about] = what
        _log.warning(message, *arguments, **more)
