"""All that Airflow's database knows of one task that waits, and of what it waits for.

Reads only. Airflow's own dependencies are not evaluated for that, since some of them write.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from airflow.exceptions import DeserializationError
from airflow.models.backfill import Backfill
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.models.xcom import XComModel
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import func, select
from sqlalchemy.orm import defer

from airflow_provider_raytenant.database.demand import TaskLimits
from airflow_provider_raytenant.database.lines import executing, read_holders, read_line, read_pool
from airflow_provider_raytenant.database.serialized import Field, tasks_of
from airflow_provider_raytenant.database.session import database_session
from airflow_provider_raytenant.domain.explain_words import choices, ranges, some
from airflow_provider_raytenant.domain.outcome import FAILURE_KEY
from airflow_provider_raytenant.domain.pool_rows import ExistingPool
from airflow_provider_raytenant.domain.waiting_facts import (
    Holder,
    Line,
    Past,
    RunFacts,
    Runs,
    TaskFacts,
    Upstream,
)
from airflow_provider_raytenant.exceptions import RequestError
from airflow_provider_raytenant.links.dashboard import RayJobLink

if TYPE_CHECKING:
    from airflow.models.serialized_dag import SerializedDagModel
    from sqlalchemy.orm import Session

SCHEDULER: Final = "SchedulerJob"
"""The type of a scheduler's heartbeats."""

_OPERATOR: Final = "RayTenantJobOperator"
_LAST_RUNS: Final = 5
_NEVER_STARTED: Final = "none"


@dataclass(frozen=True)
class Situation:
    """What the database says, in one reading; the domain's ``Facts`` say what each is."""

    task: TaskFacts
    run: RunFacts
    upstream: tuple[Upstream, ...] = ()
    past: Past | None = None
    pool: ExistingPool | None = None
    line: Line | None = None
    holders: tuple[Holder, ...] = ()
    failure: Mapping[str, Any] | None = None
    executing: int = 0


def read_situation(
    dag_id: str, run_id: str, task_id: str, map_index: int | None = None, limits: TaskLimits | None = None
) -> Situation:
    """Everything about a task instance.

    :param map_index: ``None``: the only one there is.
    :param limits: see :func:`~airflow_provider_raytenant.database.demand.read_task_limits`.
    :raises RequestError: there is no such DAG, run, task or map index; it says which there are.
    :raises DatabaseUnavailableError: there is no sound answer.
    """
    with database_session() as session:
        dag, run = _dag_and_run(session, dag_id, run_id)
        ti = _task_instance(session, dag_id, run_id, task_id, map_index)
        serialized = DBDagBag(load_op_links=False).get_serialized_dag_model_for_run(run, session=session)
        fields = {str(field("task_id")): field for field in tasks_of(serialized)}
        task = _task_facts(session, ti, fields.get(task_id))
        if ti.state == TaskInstanceState.UP_FOR_RETRY:
            task = replace(task, retry_at=_retry_at(ti, serialized))
        pool = read_pool(session, ti.pool)
        situation = Situation(
            task=task,
            run=_run_facts(session, dag, run),
            upstream=tuple(_upstream(session, ti, fields)),
            past=_past(session, ti, run, fields.get(task_id)),
            pool=pool,
            holders=tuple(read_holders(session, pool)),
            failure=_failure(session, ti),
            executing=executing(session),
        )
        if ti.state == TaskInstanceState.SCHEDULED:
            line = read_line(session, ti.pool, str(ti.id), dag.max_active_tasks, limits or {})
            return replace(situation, line=line)
        return situation


# -- which one is meant --------------------------------------------------------------------------------


def _dag_and_run(session: Session, dag_id: str, run_id: str) -> tuple[DagModel, DagRun]:
    dag = session.get(DagModel, dag_id)
    if dag is None:
        known = session.scalars(select(DagModel.dag_id).where(DagModel.is_stale.is_(False)))
        raise RequestError(f"DAG_ID: found {dag_id!r}; allowed: {choices(dag_id, known)}")
    of_dag = select(DagRun).where(DagRun.dag_id == dag_id)
    run = session.scalars(of_dag.where(DagRun.run_id == run_id)).one_or_none()
    if run is None:
        names = select(DagRun.run_id).where(DagRun.dag_id == dag_id)
        last = session.scalars(names.order_by(DagRun.run_after.desc()).limit(_LAST_RUNS)).all()
        count = session.scalar(select(func.count()).select_from(of_dag.subquery())) or 0
        rest = f" and {count - len(last)} older ones" if count > len(last) else ""
        allowed = f"the runs of {dag_id}: {', '.join(last)}{rest}" if last else f"{dag_id} has no run yet"
        raise RequestError(f"RUN_ID: found {run_id!r}; allowed: {allowed}")
    return dag, run


def _task_instance(
    session: Session, dag_id: str, run_id: str, task_id: str, map_index: int | None
) -> TaskInstance:
    of_run = (TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    found = session.execute(
        select(TaskInstance.map_index, TaskInstance.state).where(*of_run, TaskInstance.task_id == task_id)
    ).all()
    states = {int(index): state for index, state in found}
    if not states:
        known = session.scalars(select(TaskInstance.task_id).where(*of_run).distinct())
        raise RequestError(
            f"TASK_ID: found {task_id!r}; allowed: the tasks of the run: {choices(task_id, known)}"
        )
    if map_index is None and len(states) == 1:
        map_index = next(iter(states))
    if map_index not in states:
        found_text = "none" if map_index is None else str(map_index)
        raise RequestError(f"--map-index: found {found_text}; allowed: {_indexes(task_id, states)}")
    this = (*of_run, TaskInstance.task_id == task_id, TaskInstance.map_index == map_index)
    # An executor's settings are a pickle of whatever the DAG's file had: not to be opened here.
    return session.scalars(
        select(TaskInstance).where(*this).options(defer(TaskInstance.executor_config))
    ).one()


def _indexes(task_id: str, states: Mapping[int, str | None]) -> str:
    if set(states) == {-1}:
        return f"leave it out, {task_id} is not mapped (yet)"
    by_state: dict[str, list[int]] = defaultdict(list)
    for index, state in states.items():
        by_state[state or "not scheduled"].append(index)
    each = [f"{state}: {ranges(indexes)}" for state, indexes in sorted(by_state.items())]
    return f"{ranges(states)} ({some(each)})"


# -- the task and its run ------------------------------------------------------------------------------


def _task_facts(session: Session, ti: TaskInstance, field: Field | None) -> TaskFacts:
    operator = ti.operator or ""
    links = (field("_operator_extra_links") if field is not None else None) or {}
    taken = None
    if ti.state == TaskInstanceState.DEFERRED:
        taken = session.scalar(select(Trigger.triggerer_id).where(Trigger.id == ti.trigger_id)) is not None
    return TaskFacts(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=ti.map_index,
        ti_id=str(ti.id),
        state=None if ti.state is None else str(ti.state),
        try_number=ti.try_number,
        pool=ti.pool,
        slots=ti.pool_slots,
        operator=operator,
        # A class of somebody's that inherits from ours has its own name, and our link.
        is_ours=operator == _OPERATOR or RayJobLink.name in links,
        is_mapped=bool(field is not None and field("_is_mapped")),
        scheduled_at=ti.scheduled_dttm,
        queued_at=ti.queued_dttm,
        started_at=ti.start_date,
        ended_at=ti.end_date,
        heartbeat_at=ti.last_heartbeat_at,
        resumes=ti.next_method is not None and ti.state != TaskInstanceState.DEFERRED,
        trigger_taken=taken,
    )


def _retry_at(ti: TaskInstance, serialized: SerializedDagModel | None) -> datetime | None:
    try:
        dag = serialized.dag if serialized is not None else None
    except DeserializationError:
        # It names a class (a timetable) that is not installed here.
        return None
    if dag is None or not dag.has_task(ti.task_id) or ti.end_date is None:
        return None
    ti.task = dag.get_task(ti.task_id)
    at: datetime = ti.next_retry_datetime()
    return at


def _run_facts(session: Session, dag: DagModel, run: DagRun) -> RunFacts:
    running = select(func.count(DagRun.id)).where(
        DagRun.dag_id == run.dag_id, DagRun.state == DagRunState.RUNNING
    )
    # As `_start_queued_dagruns` of the scheduler counts them: those of a backfill by themselves.
    active = session.scalar(running.where(DagRun.backfill_id.is_not_distinct_from(run.backfill_id))) or 0
    runs = Runs(active, dag.max_active_runs or 0)
    if run.backfill_id is not None:
        backfill = session.get(Backfill, run.backfill_id)
        if backfill is not None:
            runs = Runs(active, backfill.max_active_runs, backfill.id, bool(backfill.is_paused))
    return RunFacts(
        state=str(run.state),
        ended_at=run.end_date,
        run_after=run.run_after,
        runs=runs,
        is_paused=bool(dag.is_paused),
        is_gone=bool(dag.is_stale),
    )


def _failure(session: Session, ti: TaskInstance) -> Mapping[str, Any] | None:
    value: Any = session.scalar(
        select(XComModel.value).where(
            XComModel.dag_id == ti.dag_id,
            XComModel.run_id == ti.run_id,
            XComModel.task_id == ti.task_id,
            XComModel.map_index == ti.map_index,
            XComModel.key == FAILURE_KEY,
        )
    )
    try:
        # Airflow encodes a value once more than the column does, and twice where a trigger's event has it.
        while isinstance(value, str):
            value = json.loads(value)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


# -- what comes before ---------------------------------------------------------------------------------


def _upstream(session: Session, ti: TaskInstance, fields: Mapping[str, Field]) -> Iterable[Upstream]:
    """The tasks before it, near and far, as far as they are in the run; the direct ones first."""
    if ti.state not in (None, TaskInstanceState.UPSTREAM_FAILED):
        return
    parents: dict[str, set[str]] = defaultdict(set)
    for task_id, field in fields.items():
        for child in field("downstream_task_ids") or ():
            parents[str(child)].add(task_id)
    direct = parents[ti.task_id]
    found: dict[str, None] = {}
    layer = sorted(direct)
    while layer:
        found.update(dict.fromkeys(layer))
        layer = sorted({up for task_id in layer for up in parents[task_id]} - set(found))
    states = _states(session, ti, set(found))
    for task_id in found:
        if task_id in states:
            yield Upstream(task_id, states[task_id], task_id in direct)


def _states(session: Session, ti: TaskInstance, task_ids: set[str]) -> dict[str, Counter[str]]:
    """By task of the run. Read whole: a list of names may be longer than a statement."""
    states: dict[str, Counter[str]] = defaultdict(Counter)
    counted = (
        select(TaskInstance.task_id, TaskInstance.state, func.count())
        .where(TaskInstance.dag_id == ti.dag_id, TaskInstance.run_id == ti.run_id)
        .group_by(TaskInstance.task_id, TaskInstance.state)
    )
    for task_id, state, count in session.execute(counted):
        if task_id in task_ids:
            states[task_id][_NEVER_STARTED if state is None else str(state)] += count
    return states


def _past(session: Session, ti: TaskInstance, run: DagRun, field: Field | None) -> Past | None:
    """The run before, where the task depends on it."""
    if ti.state is not None or field is None or not field("depends_on_past") or run.logical_date is None:
        return None
    before = session.execute(
        select(DagRun.run_id)
        .where(DagRun.dag_id == run.dag_id, DagRun.logical_date < run.logical_date)
        .order_by(DagRun.logical_date.desc())
        .limit(1)
    ).scalar()
    if before is None:
        return None
    state = session.scalar(
        select(TaskInstance.state).where(
            TaskInstance.dag_id == ti.dag_id,
            TaskInstance.run_id == before,
            TaskInstance.task_id == ti.task_id,
            TaskInstance.map_index == ti.map_index,
        )
    )
    return Past(before, None if state is None else str(state))
