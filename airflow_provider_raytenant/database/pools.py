"""Pools: read with what is occupied, written under the locks that the scheduler takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.models.dag import DagModel
from airflow.models.pool import Pool
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.sqlalchemy import with_row_locks
from sqlalchemy import select

from airflow_provider_raytenant.database.demand import AT_MOST, TaskLimits, read_demand
from airflow_provider_raytenant.database.serialized import tasks_of
from airflow_provider_raytenant.database.session import database_session
from airflow_provider_raytenant.domain.pool_rows import Change, ExistingPool, PoolPlan, PoolsNow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def read_pools(limits: TaskLimits | None = None, at_most: int = AT_MOST) -> PoolsNow:
    """All pools with what is occupied and what waits.

    :param limits: see :func:`~airflow_provider_raytenant.database.demand.read_task_limits`.
    :param at_most: waiting tasks that are read of a pool.
    """
    with database_session() as session:
        return _now(session, limits, at_most)


def read_largest_requests() -> dict[str, tuple[int, str]]:
    """By pool, the most slots that a task of a DAG asks for, with ``dag_id.task_id``.

    From the serialized DAGs, so a request is known before its task first runs.
    """
    largest: dict[str, tuple[int, str]] = {}
    with database_session() as session:
        for dag_id in session.scalars(select(DagModel.dag_id).where(DagModel.is_stale.is_(False))):
            for pool, slots, task_id in _requests(SerializedDagModel.get(dag_id, session=session)):
                if slots > largest.get(pool, (0, ""))[0]:
                    largest[pool] = (slots, f"{dag_id}.{task_id}")
    return largest


def write_pools(
    make_plan: Callable[[PoolsNow], PoolPlan], limits: TaskLimits | None = None, at_most: int = AT_MOST
) -> PoolPlan:
    """Plan and write in one short transaction that holds the pool rows, as the scheduler does.

    The plan is made inside it, from what is read inside it: tasks may start between a reading and a write.
    """
    with _locked_pools() as session:
        plan = make_plan(_now(session, limits, at_most))
        rows = {pool.pool: pool for pool in session.scalars(select(Pool))}
        for planned in plan.changes:
            row = rows.get(planned.name)
            if planned.change is Change.DELETE:
                session.delete(row)
                continue
            if row is None:
                row = Pool(pool=planned.name, slots=0, description="", include_deferred=True)
                session.add(row)
            row.slots = planned.wanted
            row.description = planned.description
            # Without it a deferred task gives its slots back, and the pool holds nothing in check.
            row.include_deferred = True
        return plan


@contextmanager
def _locked_pools() -> Iterator[Session]:
    with database_session() as session:
        session.execute(with_row_locks(select(Pool.id), session=session))
        yield session


def _now(session: Session, limits: TaskLimits | None, at_most: int) -> PoolsNow:
    existing = _read(session)
    return PoolsNow(existing, read_demand(session, limits, at_most=at_most))


def _read(session: Session) -> dict[str, ExistingPool]:
    stats = Pool.slots_stats(session=session)
    pools = {}
    for pool in session.scalars(select(Pool)):
        name = str(pool.pool)
        count = stats.get(name)
        if count is None:
            continue  # Made between the two readings; the next one has it.
        pools[name] = ExistingPool(
            name=name,
            slots=pool.slots,
            description=pool.description or "",
            include_deferred=bool(pool.include_deferred),
            occupied=count["running"] + count["queued"] + count["deferred"],
        )
    return pools


def _requests(serialized: SerializedDagModel | None) -> Iterator[tuple[str, int, str]]:
    """(pool, slots, task id) of each task."""
    for task in tasks_of(serialized):
        pool, slots = task("pool"), task("pool_slots") or 1
        if isinstance(pool, str) and isinstance(slots, int):
            yield pool, slots, str(task("task_id"))
