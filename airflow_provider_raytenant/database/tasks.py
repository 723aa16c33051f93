"""States of many task instances in few queries, reading only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select, tuple_

from airflow_provider_raytenant.database.session import database_session
from airflow_provider_raytenant.domain.sweep import OwnJob, TaskKey, TaskNow, TasksNow

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

CHUNK: Final = 200
"""Task instances a query: SQLite takes 999 parameters, and a key has four."""

_T = TypeVar("_T")


def read_tasks(jobs: Collection[OwnJob]) -> TasksNow:
    """The task instances of these jobs as they are now.

    By UUID first: it names a try and nothing else. What is not found so has been cleared, retried or
    deleted; its task, if it is still there, is looked for by name.

    :raises DatabaseUnavailableError: there is no sound answer.
    """
    if not jobs:
        return TasksNow()
    by_id: dict[str, TaskNow] = {}
    by_key: dict[TaskKey, TaskNow] = {}
    with database_session() as session:
        for ids in _chunks([UUID(job.identity.ti_id) for job in jobs]):
            _read(session, TaskInstance.id.in_(ids), by_id, by_key)
        key = tuple_(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index)
        superseded = {job.key for job in jobs if job.identity.ti_id not in by_id}
        for keys in _chunks(sorted(superseded)):
            _read(session, key.in_(keys), by_id, by_key)
    return TasksNow(by_id, by_key)


def _read(
    session: Session,
    condition: ColumnElement[bool],
    by_id: dict[str, TaskNow],
    by_key: dict[TaskKey, TaskNow],
) -> None:
    columns: Any = (
        TaskInstance.id,
        TaskInstance.state,
        TaskInstance.try_number,
        TaskInstance.pool,
        TaskInstance.dag_id,
        TaskInstance.run_id,
        TaskInstance.task_id,
        TaskInstance.map_index,
    )
    for ti_id, state, try_number, pool, *key in session.execute(select(*columns).where(condition)):
        now = TaskNow(str(ti_id), None if state is None else str(state), try_number, pool)
        by_id[now.ti_id] = now
        by_key[(key[0], key[1], key[2], key[3])] = now


def _chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for begin in range(0, len(items), CHUNK):
        yield items[begin : begin + CHUNK]
