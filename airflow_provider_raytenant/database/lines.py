"""The line of one pool: who stands where, and who holds its slots. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.ti_deps.dependencies_states import EXECUTION_STATES
from sqlalchemy import and_, func, or_, select

from airflow_provider_raytenant.database.demand import (
    HOLDS_SLOTS,
    HeldBackByLimit,
    TaskLimits,
    order_of,
    ours,
    ready,
)
from airflow_provider_raytenant.domain.pool_rows import ExistingPool
from airflow_provider_raytenant.domain.waiting_facts import HeldBack, Holder, Line

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def read_pool(session: Session, name: str) -> ExistingPool | None:
    """A pool, whoever made it, with what Airflow's scheduler counts as occupied."""
    pool = session.scalars(select(Pool).where(Pool.pool == name)).one_or_none()
    if pool is None:
        return None
    include_deferred = bool(pool.include_deferred)
    states = HOLDS_SLOTS if include_deferred else tuple(EXECUTION_STATES)
    occupied = session.scalar(
        select(func.sum(TaskInstance.pool_slots)).where(
            TaskInstance.pool == name, TaskInstance.state.in_(states)
        )
    )
    return ExistingPool(name, pool.slots, pool.description or "", include_deferred, int(occupied or 0))


def read_line(session: Session, pool: str, ti_id: str, max_active_tasks: int, limits: TaskLimits) -> Line:
    """Where a scheduled task stands in its pool's line.

    :param ti_id: its UUID.
    :param max_active_tasks: of its DAG.
    """
    rows = ready(TaskInstance.pool == pool)
    is_held_back = HeldBackByLimit(session, limits) if limits else None
    standing: list[int] = []
    ahead: tuple[int, ...] | None = None
    held: HeldBack | None = None
    columns = (rows.c.id, rows.c.pool_slots, rows.c.turn, rows.c.may_start)
    names = (rows.c.dag_id, rows.c.run_id, rows.c.task_id)
    for each, slots, turn, may_start, *name in session.execute(
        select(*columns, *names).order_by(*order_of(rows))
    ):
        back = None
        if turn > may_start:
            back = HeldBack("max_active_tasks", max_active_tasks - may_start, max_active_tasks)
        elif is_held_back is not None:
            back = is_held_back(*name)
        if str(each) == ti_id:
            held = back
            ahead = tuple(standing)
        if back is None:
            standing.append(slots)
    seen_before = _seen_before(session, ti_id)
    if ahead is None or held is not None:
        return Line(None, len(standing), (), held, seen_before)
    return Line(len(ahead) + 1, len(standing), ahead, None, seen_before)


def read_holders(session: Session, pool: ExistingPool | None) -> Iterator[Holder]:
    """Who holds slots of a pool, or of any pool of ours: the others' sizes decide over its own."""
    states = tuple(EXECUTION_STATES) if pool is not None and not pool.include_deferred else HOLDS_SLOTS
    name = pool.name if pool is not None else ""
    own = and_(TaskInstance.pool == name, TaskInstance.state.in_(states))
    columns: Any = (
        TaskInstance.pool,
        TaskInstance.pool_slots,
        TaskInstance.dag_id,
        TaskInstance.task_id,
        TaskInstance.map_index,
        TaskInstance.run_id,
        TaskInstance.state,
        TaskInstance.id,
        TaskInstance.queued_dttm,
    )
    of_ours = and_(TaskInstance.pool.in_(ours()), TaskInstance.state.in_(HOLDS_SLOTS))
    held = select(*columns).where(or_(own, of_ours))
    for name, slots, dag_id, task_id, map_index, run_id, state, ti_id, since in session.execute(held):
        task = f"{dag_id}.{task_id}" + (f"[{map_index}]" if map_index >= 0 else "")
        yield Holder(name, slots, task, run_id, str(state), str(ti_id), since)


def executing(session: Session) -> int:
    """Tasks that are queued or running, of whatever pool: what ``[core] parallelism`` is about."""
    counted = select(func.count()).where(TaskInstance.state.in_(EXECUTION_STATES))
    return int(session.scalar(counted) or 0)


def _seen_before(session: Session, ti_id: str) -> int:
    """How many tasks the scheduler looks at before this one: of all pools with a free slot, in its order."""
    stats = Pool.slots_stats(session=session)
    # A full pool's tasks are left out of its query.
    with_room = [name for name, each in stats.items() if each["open"] > 0]
    rows = ready(TaskInstance.pool.in_(with_room))
    turn = func.row_number().over(order_by=order_of(rows)).label("seen")
    seen = select(rows.c.id, turn).where(rows.c.turn <= rows.c.may_start).subquery()
    number = session.scalar(select(seen.c.seen).where(seen.c.id == UUID(ti_id)))
    return int(number or 1) - 1
