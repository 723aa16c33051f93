"""Where the tasks of backfills queue."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState, State
from sqlalchemy import func, or_, select

from airflow_provider_raytenant.database.session import database_session
from airflow_provider_raytenant.priority import BACKFILL


@dataclass(frozen=True)
class BackfillTasks:
    """Unfinished task instances of backfill runs, in a pool and of a number of slots.

    :param dag_id: of one of them.
    """

    pool: str
    slots: int
    count: int
    dag_id: str


def read_backfill_tasks(pools: Collection[str]) -> list[BackfillTasks]:
    """What is there in running runs, in these pools, waiting or active.

    :raises DatabaseUnavailableError: there is no sound answer.
    """
    ti: Any = TaskInstance
    run: Any = DagRun
    wanted = (
        select(ti.pool, ti.pool_slots, func.count("*"), func.min(ti.dag_id))
        .join(ti.dag_run)
        .where(
            run.run_type == BACKFILL,
            run.state == DagRunState.RUNNING,
            ti.pool.in_(sorted(pools)),
            # None is one of the unfinished, and SQL's IN never meets it.
            or_(ti.state.is_(None), ti.state.in_([state for state in State.unfinished if state])),
        )
        .group_by(ti.pool, ti.pool_slots)
        .order_by(ti.pool, ti.pool_slots)
    )
    with database_session() as session:
        return [BackfillTasks(*row) for row in session.execute(wanted)]
