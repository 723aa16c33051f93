"""Airflow's own settings and processes, as far as they decide over tenants' tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning
from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.heartbeat import CONTROLLER_SILENT, ROUNDS_AGO, Heartbeat

FEW_TASKS: Final = 16
"""Airflow's default of ``[scheduler] max_tis_per_query``."""


@dataclass(frozen=True)
class AirflowSettings:
    """What the configuration of this process says; that of the scheduler may be another."""

    max_tis_per_query: int
    parallelism: int
    triggerer_capacity: int
    triggerer_threshold: float
    multi_team: bool


def judge_scheduler(settings: AirflowSettings, tenants: int) -> Finding:
    """Whether one tenant's backlog can hide another's tasks (apache/airflow 45636)."""
    looks_at = settings.max_tis_per_query or settings.parallelism
    found = f"looks at {looks_at} tasks a pass ([scheduler] max_tis_per_query, as configured here)"
    if looks_at > FEW_TASKS or tenants < 2:
        return ok("scheduler", found)
    return warning(
        "scheduler",
        f"{found}: behind a backlog of one tenant the others' tasks are not seen",
        "Set it to 64 or more for the scheduler.",
    )


def judge_triggerers(beats: Sequence[Heartbeat], settings: AirflowSettings, slots: int | None) -> Finding:
    """Whether there is one, and room in it for all jobs that may run.

    :param slots: of all pools of ours: as many tasks may be deferred at a time.
    """
    alive = [beat for beat in beats if beat.running and beat.age < settings.triggerer_threshold]
    if not alive:
        last = f"none is alive; {_last(beats)}" if beats else "none has run within a week"
        return failure(
            "triggerer", f"{last}: jobs are neither submitted nor followed", "Start `airflow triggerer`."
        )
    room = len(alive) * settings.triggerer_capacity
    found = f"{len(alive)} alive, with room for {room} tasks"
    if slots is not None and slots > room:
        return warning(
            "triggerer",
            f"{found}, but the pools have {slots} slots",
            "Start more triggerers, or raise [triggerer] capacity.",
        )
    return ok("triggerer", found)


def judge_controllers(beats: Sequence[Heartbeat], rounds: Sequence[Heartbeat]) -> Finding:
    """Whether somebody keeps the pools right and stops orphans.

    :param rounds: of `controller --once`.
    """
    alive = [beat for beat in beats if beat.running and beat.age < CONTROLLER_SILENT]
    if alive:
        return ok("controller", f"alive on {', '.join(sorted({beat.hostname for beat in alive}))}")
    once = min(rounds, key=lambda beat: beat.age, default=None)
    if once is not None and once.age < ROUNDS_AGO:
        return ok("controller", f"a single round {format_duration(once.age)} ago on {once.hostname}")
    advice = "Run `airflow raytenant controller` beside the scheduler."
    missing = "pools do not follow the cluster, and orphans run on"
    if not beats:
        return warning("controller", f"none has run within a week: {missing}", advice)
    latest = min(beats, key=lambda beat: beat.age)
    judge = failure if latest.running else warning
    how = "fell silent" if latest.running else "ended"
    when = format_duration(latest.age)
    return judge("controller", f"the last one {how} {when} ago on {latest.hostname}: {missing}", advice)


def judge_teams(settings: AirflowSettings) -> Finding:
    """Teams of Airflow, which the tenant file knows nothing of."""
    if not settings.multi_team:
        return ok("teams", "[core] multi_team is off")
    return warning(
        "teams",
        "[core] multi_team is on, with which this provider was not tried",
        "Take care that no team takes the tenants' pools for its own: they belong to none.",
    )


def _last(beats: Sequence[Heartbeat]) -> str:
    latest = min(beats, key=lambda beat: beat.age)
    return f"the last one was heard of {format_duration(latest.age)} ago on {latest.hostname}"
