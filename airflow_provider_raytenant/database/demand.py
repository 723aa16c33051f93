"""What waits for each pool of ours: the tasks that Airflow's scheduler would start if the pool had room.

The conditions and the order are those of ``SchedulerJobRunner._executable_task_instances_to_queued`` (Airflow
3.3). What something else holds back is no demand: slots that nobody can use would be kept for it. With it
comes for how long others have held the pool's slots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.ti_deps.dependencies_states import ACTIVE_STATES, EXECUTION_STATES
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import and_, func, select

from airflow_provider_raytenant.database.serialized import tasks_of
from airflow_provider_raytenant.database.session import database_session
from airflow_provider_raytenant.domain.demand import Demand, Standing, demand_of, order_key
from airflow_provider_raytenant.domain.pool_rows import MARK
from airflow_provider_raytenant.domain.waiting_facts import HeldBack

if TYPE_CHECKING:
    from sqlalchemy import Subquery
    from sqlalchemy.orm import Session

AT_MOST: Final = 1000
"""Waiting tasks that are read of a pool, if the caller does not know how many could start at all."""

HOLDS_SLOTS: Final = (*EXECUTION_STATES, TaskInstanceState.DEFERRED)
"""States of a task that holds slots of a pool of ours."""

_TaskName = tuple[str, str]
"""dag_id and task_id."""


@dataclass(frozen=True)
class TaskLimit:
    """``max_active_tis_per_dag`` and ``max_active_tis_per_dagrun`` of a task; ``None``: no limit."""

    in_dag: int | None
    in_run: int | None


TaskLimits = Mapping[_TaskName, TaskLimit]


def read_task_limits() -> dict[_TaskName, TaskLimit]:
    """The tasks of DAGs that may not have any number of instances at once.

    Reading them means reading whole DAGs: not for the short transaction in which pools are written.

    :raises DatabaseUnavailableError: there is no sound answer.
    """
    limits = {}
    having = select(DagModel.dag_id).where(
        DagModel.is_stale.is_(False), DagModel.has_task_concurrency_limits.is_(True)
    )
    with database_session() as session:
        for dag_id in session.scalars(having):
            for task in tasks_of(SerializedDagModel.get(dag_id, session=session)):
                in_dag, in_run = (task(f"max_active_tis_per_{of}") for of in ("dag", "dagrun"))
                if in_dag is not None or in_run is not None:
                    limits[dag_id, str(task("task_id"))] = TaskLimit(in_dag, in_run)
    return limits


def read_demand(
    session: Session, limits: TaskLimits | None = None, *, at_most: int = AT_MOST, now: datetime | None = None
) -> dict[str, Demand]:
    """What waits, by name of pool, for pools of ours in which anything waits or runs.

    Reads only, in two queries; a third where there are limits.

    :param limits: see :func:`read_task_limits`.
    :param at_most: tasks that are read of a pool: beyond its slots nobody cares.
    :param now: default: the present; aware.
    """
    active: dict[str, list[Standing]] = defaultdict(list)
    waiting: dict[str, list[int]] = defaultdict(list)
    first: dict[str, Standing] = {}
    for pool, *standing in session.execute(_active()):
        active[pool].append(_standing(*standing))
    is_held_back = HeldBackByLimit(session, limits) if limits else None
    # Rows by the thousand: what is done with each counts.
    for pool, slots, since, priority, date, map_index, *name in session.execute(_waiting(at_most)):
        if is_held_back is None or not is_held_back(*name):
            waiting[pool].append(slots)
            if pool not in first:
                first[pool] = _standing(slots, since, priority, date, map_index)
    now = now or datetime.now(UTC)
    return {
        pool: demand_of(first.get(pool), waiting.get(pool, ()), active.get(pool, ()), now)
        for pool in {**active, **waiting}
    }


def _active() -> Any:
    columns: Any = (
        TaskInstance.pool,
        TaskInstance.pool_slots,
        TaskInstance.queued_dttm,
        TaskInstance.priority_weight,
        DagRun.logical_date,
        TaskInstance.map_index,
    )
    return (
        select(*columns)
        .join(TaskInstance.dag_run)
        .where(TaskInstance.state.in_(HOLDS_SLOTS), TaskInstance.pool.in_(ours()))
    )


def ours() -> Any:
    """The names of the pools that we made, as a query."""
    return select(Pool.pool).where(Pool.description.startswith(MARK))


def _waiting(at_most: int) -> Any:
    """At most so many of each pool, in the scheduler's order, as many of each run as may still start."""
    rows = ready(TaskInstance.pool.in_(ours()))
    place = func.row_number().over(partition_by=rows.c.pool, order_by=order_of(rows))
    ranked = select(rows, place.label("place")).where(rows.c.turn <= rows.c.may_start).subquery()
    wanted = [column for column in ranked.c if column.name not in ("id", "turn", "may_start", "place")]
    return select(*wanted).where(ranked.c.place <= at_most).order_by(ranked.c.pool, ranked.c.place)


def order_of(rows: Subquery) -> list[Any]:
    """The order in which the scheduler starts what :func:`ready` gives."""
    return [-rows.c.priority_weight, rows.c.logical_date, rows.c.map_index]


def ready(pools: Any) -> Subquery:
    """What is scheduled in running runs; ``turn`` is its place among its run's tasks of the same pool.

    Of the same pool: what waits for another pool does not hold it back once that one is full. ``may_start``
    is how many tasks of its run may still start; where ``turn`` is above it, others of the run come first.

    :param pools: a condition on the task instance's pool.
    """
    ti: Any = TaskInstance
    run: Any = DagRun
    dag: Any = DagModel
    busy = (
        select(ti.dag_id, ti.run_id, func.count("*").label("count"))
        .where(ti.state.in_(EXECUTION_STATES))
        .group_by(ti.dag_id, ti.run_id)
        .subquery()
    )
    turn = func.row_number().over(
        partition_by=[ti.dag_id, ti.run_id, ti.pool],
        order_by=[-ti.priority_weight, run.logical_date, ti.map_index],
    )
    return (
        select(
            ti.pool,
            ti.pool_slots,
            ti.scheduled_dttm,
            ti.priority_weight,
            run.logical_date,
            ti.map_index,
            ti.dag_id,
            ti.run_id,
            ti.task_id,
            ti.id,
            turn.label("turn"),
            (dag.max_active_tasks - func.coalesce(busy.c.count, 0)).label("may_start"),
        )
        .join(ti.dag_run)
        .join(ti.dag_model)
        .join(busy, and_(ti.dag_id == busy.c.dag_id, ti.run_id == busy.c.run_id), isouter=True)
        .where(
            ti.state == TaskInstanceState.SCHEDULED,
            pools,
            run.state == DagRunState.RUNNING,
            ~dag.is_paused,
            dag.bundle_name.is_not(None),
        )
        .subquery()
    )


def _standing(
    slots: int, since: datetime | None, priority_weight: int, logical_date: datetime | None, map_index: int
) -> Standing:
    return Standing(order_key(priority_weight, logical_date, map_index), slots, since)


class HeldBackByLimit:
    """Tells of one waiting task after the other whether a limit of its own holds it back, and which."""

    def __init__(self, session: Session, limits: TaskLimits) -> None:
        self._limits = limits
        self._in_dag: Counter[_TaskName] = Counter()
        self._in_run: Counter[tuple[str, str, str]] = Counter()
        self._count(session, {dag_id for dag_id, _ in limits})

    def __call__(self, dag_id: str, run_id: str, task_id: str) -> HeldBack | None:
        name, in_run = (dag_id, task_id), (dag_id, run_id, task_id)
        limit = self._limits.get(name)
        if limit is None:
            return None
        if limit.in_dag is not None and self._in_dag[name] >= limit.in_dag:
            return HeldBack("max_active_tis_per_dag", self._in_dag[name], limit.in_dag)
        if limit.in_run is not None and self._in_run[in_run] >= limit.in_run:
            return HeldBack("max_active_tis_per_dagrun", self._in_run[in_run], limit.in_run)
        self._in_dag[name] += 1
        self._in_run[in_run] += 1
        return None

    def _count(self, session: Session, dag_ids: Iterable[str]) -> None:
        ti: Any = TaskInstance
        counted = (
            select(ti.dag_id, ti.task_id, ti.run_id, func.count("*"))
            .where(ti.state.in_(ACTIVE_STATES), ti.dag_id.in_(sorted(dag_ids)))
            .group_by(ti.dag_id, ti.task_id, ti.run_id)
        )
        for dag_id, task_id, run_id, count in session.execute(counted):
            self._in_dag[dag_id, task_id] += count
            self._in_run[dag_id, run_id, task_id] += count
