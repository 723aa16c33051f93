"""Signs of life in Airflow's table ``job``, where its own components leave theirs.

The controller's row is one like theirs: it names the host, ``GET /api/v2/jobs`` shows it, and `airflow db
clean` removes it in time. A Variable would be a setting among people's own, and one for all controllers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.jobs.job import Job, JobState
from airflow.utils.net import get_hostname
from sqlalchemy import insert, select, update

from airflow_provider_raytenant.database.session import database_session
from airflow_provider_raytenant.domain.heartbeat import Heartbeat

TRIGGERER: Final = "TriggererJob"
CONTROLLER: Final = "RayTenantController"
CONTROLLER_ONCE: Final = "RayTenantControllerOnce"
"""Rounds of `controller --once`: one row a host, whoever starts them."""

SYNC: Final = "RayTenantPoolsSync"
"""When the pools were last made what they should be: one row a host, whoever did it."""

INTERVAL: Final = 5.0
"""Seconds between two heartbeats: Airflow takes a process of a type that it does not know for dead after
2.1 times ``[scheduler] job_heartbeat_sec``, which is 5."""

_REMEMBERED: Final = timedelta(days=7)


def beat(job_id: int | None) -> int:
    """Say that a controller lives; the number to say it with the next time.

    :param job_id: what the call before gave.
    :raises DatabaseUnavailableError: it cannot be said.
    """
    now = datetime.now(UTC)
    with database_session() as session:
        if job_id is not None:
            known = update(Job).where(Job.id == job_id).values(latest_heartbeat=now)
            if _rows(session.execute(known)):
                return job_id
        # Not `Job(...)`: that calls listeners, for which a controller is no component.
        return _id(session.execute(insert(Job).values(**_row(CONTROLLER), state=JobState.RUNNING)))


def end(job_id: int) -> None:
    """Say that a controller ends of its own will.

    :raises DatabaseUnavailableError: it cannot be said.
    """
    now = datetime.now(UTC)
    with database_session() as session:
        last = update(Job).where(Job.id == job_id)
        session.execute(last.values(state=JobState.SUCCESS, latest_heartbeat=now, end_date=now))


def note(job_type: str) -> None:
    """Say that something was done now, from this host: a round of `controller --once`, a sync.

    :raises DatabaseUnavailableError: it cannot be said.
    """
    row = _row(job_type)
    row.update(state=JobState.SUCCESS, end_date=row["latest_heartbeat"])
    with database_session() as session:
        mine = (Job.job_type == job_type, Job.hostname == row["hostname"])
        if not _rows(session.execute(update(Job).where(*mine).values(**row))):
            session.execute(insert(Job).values(**row))


def read_heartbeats(job_type: str) -> list[Heartbeat]:
    """Processes of a type that were heard of within a week.

    :raises DatabaseUnavailableError: there is no sound answer.
    """
    now = datetime.now(UTC)
    columns: Any = (Job.hostname, Job.state, Job.latest_heartbeat)
    with database_session() as session:
        recent = (Job.job_type == job_type, Job.latest_heartbeat > now - _REMEMBERED)
        return [
            Heartbeat(hostname or "", state == JobState.RUNNING, (now - at).total_seconds())
            for hostname, state, at in session.execute(select(*columns).where(*recent))
        ]


def _row(job_type: str) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "job_type": job_type,
        "hostname": get_hostname(),
        "start_date": now,
        "latest_heartbeat": now,
    }


def _rows(result: Any) -> int:
    return int(result.rowcount)


def _id(result: Any) -> int:
    return int(result.inserted_primary_key[0])
