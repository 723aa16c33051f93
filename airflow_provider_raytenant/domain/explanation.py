"""What an explanation is, and what its parts share. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.explain_words import line_of, span
from airflow_provider_raytenant.domain.heartbeat import CONTROLLER_SILENT, ROUNDS_AGO, Heartbeat
from airflow_provider_raytenant.domain.waiting_facts import Facts, Holder, TaskFacts


class Verdict(StrEnum):
    """Why a task waits, for programs."""

    ENDED = "ended"
    RUN_ENDED = "run ended"
    DAG_GONE = "dag gone"
    DAG_PAUSED = "dag paused"
    RUN_QUEUED = "run queued"
    NO_SCHEDULER = "no scheduler"
    UPSTREAM = "upstream"
    PAST = "depends on past"
    NOT_SCHEDULED = "not scheduled yet"
    RETRY = "retry"
    OTHER = "other"
    NO_POOL = "no pool"
    POOL_PAUSED = "pool paused"
    NO_NODES = "no nodes"
    NEVER = "never"
    HELD_BACK = "held back"
    NEXT_PASS = "next pass"
    HIDDEN = "not looked at"
    EXECUTOR_FULL = "executor full"
    NO_CONTROLLER = "no controller"
    NEXT_SYNC = "next sync"
    POOL_SMALL = "pool too small now"
    IN_LINE = "in line"
    QUEUED = "queued"
    RUNS = "runs"
    SUBMITTING = "being submitted"
    NO_TRIGGERER = "no triggerer"
    JOB_PENDING = "job pending"
    JOB_RUNS = "job runs"
    JOB_ENDED = "job ended"
    UNKNOWN = "cluster silent"


@dataclass(frozen=True)
class Explanation:
    """The answer in one sentence, what shows it, and what to do.

    :param evidence: label and text, a line each.
    :param holders: who holds the slots, the most important first.
    :param advice: what to do, in the order in which to try it; a command stands in backquotes.
    """

    verdict: Verdict
    answer: str
    evidence: tuple[tuple[str, str], ...] = ()
    holders: tuple[Holder, ...] = ()
    advice: tuple[str, ...] = ()


def explain_command(task: TaskFacts, task_id: str) -> str:
    """The command that explains another task of the run."""
    return f"`airflow raytenant explain {shlex.join([task.dag_id, task.run_id, task_id])}`"


def alive(beats: Sequence[Heartbeat], silent: float) -> list[Heartbeat]:
    """Those that were heard of lately."""
    return [beat for beat in beats if beat.running and beat.age < silent]


def no_scheduler(facts: Facts) -> Explanation | None:
    """The explanation where no scheduler is alive: then nothing starts at all."""
    beats = facts.processes.schedulers
    if alive(beats, facts.processes.scheduler_silent):
        return None
    return Explanation(
        Verdict.NO_SCHEDULER,
        "Waits for a scheduler: none is alive, so nothing starts at all.",
        (("scheduler", last_of(beats)),),
        advice=("Start it: `airflow scheduler`.",),
    )


def has_controller(facts: Facts) -> bool:
    """Whether somebody keeps the pools' sizes right, or did a round not long ago."""
    if alive(facts.processes.controllers, CONTROLLER_SILENT):
        return True
    return any(beat.age < ROUNDS_AGO for beat in facts.processes.rounds)


def last_of(beats: Sequence[Heartbeat]) -> str:
    """When the last one of a kind that is not alive was heard of."""
    if not beats:
        return "none has run within a week"
    latest = min(beats, key=lambda beat: beat.age)
    how = "was last heard of" if latest.running else "ended"
    return f"none is alive; the last one {how} {format_duration(latest.age)} ago on {latest.hostname}"


def silence(facts: Facts) -> list[tuple[str, str]]:
    """A line for each cluster that gives no answer."""
    return [("cluster", f"{name} is silent: {line_of(why)}") for name, why in facts.silent.items()]


def failure_lines(facts: Facts) -> list[tuple[str, str]]:
    """What the try's failure says."""
    failure: Any = facts.failure
    if not failure:
        return []
    return [("failure", line_of(f"{failure.get('error') or 'failed'}: {failure.get('message') or ''}"))]


def standing_line(facts: Facts) -> tuple[str, str]:
    """Which task this is, and where Airflow has it."""
    task, now = facts.task, facts.now
    since = {
        "scheduled": task.scheduled_at,
        "queued": task.queued_at,
        "running": task.started_at,
        "deferred": task.started_at,
    }.get(task.state or "")
    for_ = f" for {span(since, now)}" if since is not None else ""
    tries = f", try {task.try_number}" if task.try_number > 0 else ""
    return "task", f"{task.label}{tries}, {task.state or 'not scheduled'}{for_}"


def request_line(facts: Facts) -> tuple[str, str]:
    """What it asks for, and whose it is."""
    task = facts.task
    asks = f"{task.slots} slot{'' if task.slots == 1 else 's'} of pool {task.pool}"
    if not task.is_ours:
        return "request", f"{asks}; {task.operator or 'its operator'} is no task of a tenant"
    return "request", asks + (f", tenant {facts.tenant}" if facts.tenant else "")
