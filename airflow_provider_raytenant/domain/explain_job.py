"""Why a task that the scheduler has started is not done: executor, trigger, Ray. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from airflow_provider_raytenant.domain.explain_words import ago, line_of, span
from airflow_provider_raytenant.domain.explanation import (
    Explanation,
    Verdict,
    alive,
    last_of,
    silence,
)
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.waiting_facts import Facts, JobFacts
from airflow_provider_raytenant.domain.wording import count

_LONG: Final = 300.0
"""Seconds in the executor's queue, or without a sign of a worker, after which something is likely wrong."""


def explain_active(facts: Facts) -> Explanation:
    """A task that is queued, running or deferred."""
    if facts.task.state == "queued":
        return _queued(facts)
    if facts.job is not None:
        return _with_job(facts, facts.job)
    if not facts.task.is_ours:
        return Explanation(Verdict.RUNS, f"Has started: Airflow has it as {facts.task.state}.")
    if facts.silent:
        return _silent(facts)
    return _deferred(facts) if facts.task.state == "deferred" else _preparing(facts)


def _queued(facts: Facts) -> Explanation:
    task, settings = facts.task, facts.settings
    waited = None if task.queued_at is None else (facts.now - task.queued_at).total_seconds()
    advice = ("If it stays so, look at the executor and its workers.",)
    if waited is not None and waited > _LONG:
        advice = ("That is long: look at the executor's workers, and at the scheduler's log.",)
    running = count(settings.executing, "task")
    return Explanation(
        Verdict.QUEUED,
        f"Has its slots, and waits for the executor to start it: queued {ago(task.queued_at, facts.now)}.",
        (
            (
                "executor",
                f"{running} queued or running; a scheduler has at most {settings.parallelism} at a time",
            ),
        ),
        advice=advice,
    )


def _silent(facts: Facts) -> Explanation:
    names = " and ".join(facts.silent)
    return Explanation(
        Verdict.UNKNOWN,
        f"Airflow has it as {facts.task.state}; how its job is nobody knows, as {names} is silent.",
        tuple(silence(facts)),
        advice=("A silent dashboard stops no job. See what is wrong: `airflow raytenant doctor`.",),
    )


def _deferred(facts: Facts) -> Explanation:
    beats = facts.processes.triggerers
    there = alive(beats, facts.processes.triggerer_silent)
    if not there:
        return _no_triggerer(
            facts, "Waits for a triggerer, none of which is alive: its job is not submitted."
        )
    evidence = (("triggerer", f"{len(there)} alive"),)
    if facts.task.trigger_taken is False:
        return Explanation(
            Verdict.SUBMITTING,
            "Waits until a triggerer takes it over and submits its job.",
            evidence,
            advice=("If it stays so, the triggerers are full: start more, or raise [triggerer] capacity.",),
        )
    return Explanation(
        Verdict.SUBMITTING,
        "Its trigger is submitting the job: Ray has none of it yet.",
        evidence,
        advice=("If it stays so, the task's log says why.",),
    )


def _preparing(facts: Facts) -> Explanation:
    task, now = facts.task, facts.now
    heard = task.heartbeat_at
    if heard is not None and (now - heard).total_seconds() > _LONG:
        return Explanation(
            Verdict.SUBMITTING,
            f"Its worker has been silent for {span(heard, now)}, and no job is submitted.",
            advice=("Look at the worker; the scheduler fails the task when it takes the worker for dead.",),
        )
    return Explanation(
        Verdict.SUBMITTING,
        f"Its worker prepares the job, or ends the task: started {ago(task.started_at, now)}, no job in Ray.",
        advice=("If it stays so, the task's log says why.",),
    )


def _with_job(facts: Facts, job: JobFacts) -> Explanation:
    status, now = job.info.status, facts.now
    submitted = _instant(job.info.start_time)
    evidence = [("job", f"{job.short_id}, {status.value} on cluster {job.cluster}")]
    if job.info.message:
        evidence.append(("ray says", line_of(job.info.message)))
    if job.page:
        evidence.append(("dashboard", job.page))
    show = f"`airflow raytenant jobs show {job.short_id}`"
    if status is JobStatus.PENDING:
        return Explanation(
            Verdict.JOB_PENDING,
            f"Its job waits in Ray, for resources or its environment: submitted {ago(submitted, now)}.",
            (*evidence, *_triggerer(facts)),
            advice=(
                "Ray starts it when its nodes have room and its packages are there; after queue_timeout "
                "it is stopped and may be tried again.",
                show,
            ),
        )
    if status is JobStatus.RUNNING:
        return Explanation(
            Verdict.JOB_RUNS,
            f"Runs: its job is running in Ray, submitted {ago(submitted, now)}.",
            (*evidence, *_triggerer(facts)),
            advice=(show,),
        )
    return _ended_job(facts, job, tuple(evidence))


def _ended_job(facts: Facts, job: JobFacts, evidence: tuple[tuple[str, str], ...]) -> Explanation:
    ended = f"{job.info.status.value} {ago(_instant(job.info.end_time), facts.now)}"
    if facts.task.state == "deferred":
        if not alive(facts.processes.triggerers, facts.processes.triggerer_silent):
            return _no_triggerer(facts, f"Its job has ended ({ended}), but no triggerer is alive to end it.")
        end = "its trigger is about to end the task"
    else:
        end = "its worker is about to end the task"
    return Explanation(
        Verdict.JOB_ENDED,
        f"Its job has ended ({ended}); {end}.",
        evidence,
        advice=("If it stays so for a minute, the task's log says why.",),
    )


def _no_triggerer(facts: Facts, answer: str) -> Explanation:
    return Explanation(
        Verdict.NO_TRIGGERER,
        answer,
        (("triggerer", last_of(facts.processes.triggerers)),),
        advice=("Start it: `airflow triggerer`. It finds the job again by itself.",),
    )


def _triggerer(facts: Facts) -> list[tuple[str, str]]:
    """A line where nobody follows the job."""
    beats = facts.processes.triggerers
    if facts.task.state != "deferred" or alive(beats, facts.processes.triggerer_silent):
        return []
    return [("triggerer", f"{last_of(beats)}: nobody follows the job")]


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
