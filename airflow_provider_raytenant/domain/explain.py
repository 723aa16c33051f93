"""Why a task waits: plain facts in, one answer with its evidence and what to do out. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.explain_job import explain_active
from airflow_provider_raytenant.domain.explain_pool import explain_scheduled
from airflow_provider_raytenant.domain.explain_words import ago, line_of, some, states
from airflow_provider_raytenant.domain.explanation import (
    Explanation,
    Verdict,
    explain_command,
    failure_lines,
    no_scheduler,
    request_line,
    standing_line,
)
from airflow_provider_raytenant.domain.waiting_facts import Facts, Upstream

_ENDED: Final[Mapping[str, str]] = {
    "success": "it succeeded",
    "failed": "it failed",
    "skipped": "it was skipped",
    "upstream_failed": "a task before it failed, so it does not run",
    "removed": "its DAG does not have it any more",
}
_ACTIVE: Final = frozenset({"queued", "running", "deferred"})
_FAILED: Final = frozenset({"failed", "upstream_failed"})
_AGAIN: Final = "To run it again, clear it: in the UI, or with `airflow tasks clear`."


def explain(facts: Facts) -> Explanation:
    """The answer; never an error, whatever the facts are."""
    found = _decide(facts)
    evidence = (standing_line(facts), ("run", facts.task.run_id), request_line(facts), *found.evidence)
    return replace(found, evidence=evidence)


def _decide(facts: Facts) -> Explanation:
    state = facts.task.state
    if state in _ENDED:
        return _ended(facts)
    if state in _ACTIVE:
        return explain_active(facts)
    if state not in _WAITING:
        return _other(facts)
    return _not_at_all(facts) or _WAITING[state](facts)


def _ended(facts: Facts) -> Explanation:
    task = facts.task
    when = f" {ago(task.ended_at, facts.now)}" if task.ended_at is not None else ""
    tries = f" in try {task.try_number}" if task.state in ("success", "failed") else ""
    evidence: list[tuple[str, str]] = failure_lines(facts)
    advice: list[str] = []
    if task.state == "failed":
        failure = facts.failure or {}
        if isinstance(failure.get("error"), str):
            # Code of the DAG's may write an XCom of that name, too.
            tries += f", with {line_of(failure['error'], 60)}"
        if failure.get("retryable") is False:
            advice.append("Another try would end the same: mend first what the failure says.")
        advice.append(_AGAIN)
    if task.state == "upstream_failed":
        failed = [up for up in facts.upstream if _FAILED & set(up.states)]
        evidence += _before("failed", failed)
        # The failure lies where no other stands before it.
        first = [explain_command(task, up.task_id) for up in failed if "failed" in up.states][:1]
        advice = [*first, _AGAIN]
    return Explanation(
        Verdict.ENDED,
        f"Ended{when}: {_ENDED[task.state or '']}{tries}.",
        tuple(evidence),
        advice=tuple(advice),
    )


def _not_at_all(facts: Facts) -> Explanation | None:
    """What keeps any task of the run, or of its DAG, from starting."""
    run, task = facts.run, facts.task
    if run.state in ("success", "failed"):
        return Explanation(
            Verdict.RUN_ENDED,
            f"Will not start: its run has ended ({run.state}, {ago(run.ended_at, facts.now)}).",
            advice=(f"{_AGAIN} That sets the run going, too.",),
        )
    if run.is_gone:
        return Explanation(
            Verdict.DAG_GONE,
            f"Will not start: no DAG file has {task.dag_id} any more.",
            advice=("Look whether its file can be read: `airflow dags list-import-errors`.",),
        )
    if run.is_paused:
        return Explanation(
            Verdict.DAG_PAUSED,
            f"Will not start while its DAG is paused: {task.dag_id}.",
            advice=(f"`airflow dags unpause {shlex.quote(task.dag_id)}`",),
        )
    return _run_queued(facts) if run.state == "queued" else None


def _run_queued(facts: Facts) -> Explanation:
    runs, after = facts.run.runs, facts.run.run_after
    whose = "its DAG" if runs.backfill is None else f"backfill {runs.backfill}"
    if runs.backfill is not None and runs.backfill_paused:
        return Explanation(
            Verdict.RUN_QUEUED,
            f"Waits for its run, which is queued: {whose} is paused.",
            advice=("Unpause the backfill in the UI, on the page of its DAG.",),
        )
    evidence = ((("runs", f"{runs.active} of {runs.most} of {whose} are running (max_active_runs)")),)
    if after is not None and after > facts.now:
        return Explanation(
            Verdict.RUN_QUEUED, f"Waits for its run, which is queued until {_instant(after)}.", evidence
        )
    if runs.active >= runs.most:
        return Explanation(
            Verdict.RUN_QUEUED,
            f"Waits for its run, which is queued: {runs.active} of {runs.most} runs of {whose} are running.",
            evidence,
            advice=("It starts when one of them ends; max_active_runs says how many may run.",),
        )
    return no_scheduler(facts) or Explanation(
        Verdict.RUN_QUEUED, "Waits for its run, which the scheduler is about to start.", evidence
    )


def _unscheduled(facts: Facts) -> Explanation:
    task = facts.task
    waiting = [up for up in facts.upstream if set(up.states) - set(_ENDED)]
    direct = [up for up in waiting if up.direct]
    if direct:
        # What others wait for, and waits for no other itself.
        front = [up for up in waiting if set(up.states) - set(_ENDED) - {"none"}] or direct
        total = sum(up.direct for up in facts.upstream)
        open_ = f"{len(direct)} of {total} tasks" if total > 1 else "the task"
        return Explanation(
            Verdict.UPSTREAM,
            f"Not scheduled yet: {open_} before it {'is' if len(direct) == 1 else 'are'} not done.",
            (*_before("waits for", direct), *_before("in front", [up for up in front if up not in direct])),
            advice=(explain_command(task, front[0].task_id),),
        )
    if facts.past is not None and facts.past.state not in ("success", "skipped"):
        return Explanation(
            Verdict.PAST,
            f"Not scheduled: depends_on_past, and in the run before it is {facts.past.state or 'not done'}.",
            (("run before", facts.past.run_id),),
            advice=("It has to succeed there, or be marked so, first.",),
        )
    dead = no_scheduler(facts)
    if dead is not None:
        return dead
    if task.is_mapped and task.map_index < 0:
        return Explanation(
            Verdict.NOT_SCHEDULED,
            "Not mapped yet: the scheduler is about to make its instances, nothing before it is open.",
        )
    return Explanation(
        Verdict.NOT_SCHEDULED,
        "Not scheduled yet, though nothing before it is open: the scheduler is about to look.",
        advice=("If it stays so for minutes, look at the scheduler's log.",),
    )


def _retry(facts: Facts) -> Explanation:
    task, at = facts.task, facts.task.retry_at
    failed = f"try {task.try_number} failed {ago(task.ended_at, facts.now)}"
    evidence = tuple(failure_lines(facts))
    if at is None:
        return Explanation(Verdict.RETRY, f"Waits for its next try: {failed}.", evidence)
    if at > facts.now:
        left = format_duration((at - facts.now).total_seconds())
        return Explanation(
            Verdict.RETRY,
            f"Waits for its next try in {left} ({_instant(at)}): {failed}.",
            evidence,
            advice=("To try at once, clear it: in the UI, or with `airflow tasks clear`.",),
        )
    return no_scheduler(facts) or Explanation(
        Verdict.RETRY, f"Its next try is due, the scheduler is about to take it: {failed}.", evidence
    )


def _other(facts: Facts) -> Explanation:
    words = {
        "restarting": "Was cleared while it ran: its worker stops it, then it is scheduled again.",
        "up_for_reschedule": "A sensor that looks again later; it holds no slot meanwhile.",
        "awaiting_input": "Waits for a person's answer in the UI; it holds no slot meanwhile.",
    }
    state = facts.task.state
    return Explanation(Verdict.OTHER, words.get(state or "", f"Airflow has it as {state}."))


_WAITING: Final[Mapping[str | None, Callable[[Facts], Explanation]]] = {
    None: _unscheduled,
    "up_for_retry": _retry,
    "scheduled": explain_scheduled,
}


def _before(label: str, upstream: list[Upstream]) -> list[tuple[str, str]]:
    named = [f"{up.task_id} ({states(up.states)})" for up in upstream]
    return [(label, some(named))] if named else []


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
