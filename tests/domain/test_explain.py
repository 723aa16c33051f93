"""Why a task waits: an answer of its own for every case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_raytenant.domain.explanation import Verdict
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.domain.waiting_facts import (
    Past,
    RunFacts,
    Runs,
    Upstream,
)
from airflow_provider_raytenant.exceptions import JobKilledError, RuntimeEnvError
from tests.domain.explain_world import (
    DEAD,
    NOW,
    PROCESSES,
    ago,
    evidence,
    explained,
    job,
    task,
)

MESSAGE = Outcome("id", error=JobKilledError("the job was killed\nby SIGKILL")).failure()


@pytest.mark.parametrize(
    ("state", "run", "verdict", "answer"),
    [
        ("scheduled", RunFacts("failed", ago(300)), Verdict.RUN_ENDED, "its run has ended (failed, 5m ago)"),
        (None, RunFacts("success", ago(300)), Verdict.RUN_ENDED, "its run has ended (success, 5m ago)"),
        ("scheduled", RunFacts(is_gone=True), Verdict.DAG_GONE, "no DAG file has etl any more"),
        ("scheduled", RunFacts(is_paused=True), Verdict.DAG_PAUSED, "while its DAG is paused: etl"),
        (None, RunFacts("queued", is_paused=True), Verdict.DAG_PAUSED, "while its DAG is paused: etl"),
        ("up_for_retry", RunFacts(is_paused=True), Verdict.DAG_PAUSED, "while its DAG is paused: etl"),
        (
            None,
            RunFacts("queued", runs=Runs(16, 16)),
            Verdict.RUN_QUEUED,
            "16 of 16 runs of its DAG are running",
        ),
        (
            None,
            RunFacts("queued", runs=Runs(2, 2, backfill=7)),
            Verdict.RUN_QUEUED,
            "2 of 2 runs of backfill 7 are running",
        ),
        (
            None,
            RunFacts("queued", runs=Runs(0, 2, backfill=7, backfill_paused=True)),
            Verdict.RUN_QUEUED,
            "backfill 7 is paused",
        ),
        (
            None,
            RunFacts("queued", run_after=NOW + timedelta(hours=1)),
            Verdict.RUN_QUEUED,
            "queued until 2026-12-01 13:00:00 UTC",
        ),
        (None, RunFacts("queued"), Verdict.RUN_QUEUED, "the scheduler is about to start"),
    ],
)
def test_what_keeps_every_task_of_a_run_from_starting(
    state: str | None, run: RunFacts, verdict: Verdict, answer: str
) -> None:
    found = explained(task(state), run=run)
    assert (found.verdict, answer in found.answer) == (verdict, True), found


def test_a_paused_dag_comes_with_the_command_that_unpauses_it() -> None:
    found = explained(task(dag_id="etl of $HOME"), run=RunFacts(is_paused=True))
    assert found.advice == ("`airflow dags unpause 'etl of $HOME'`",)


def test_a_run_that_is_gone_does_not_hide_what_already_runs() -> None:
    found = explained(task("deferred"), run=RunFacts("failed", is_paused=True), job=job())
    assert found.verdict is Verdict.JOB_RUNS


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("success", "Ended 5m ago: it succeeded in try 1."),
        ("failed", "Ended 5m ago: it failed in try 1, with JobKilledError."),
        ("skipped", "Ended 5m ago: it was skipped."),
        ("upstream_failed", "Ended 5m ago: a task before it failed, so it does not run."),
        ("removed", "Ended 5m ago: its DAG does not have it any more."),
    ],
)
def test_what_has_ended_says_so(state: str, answer: str) -> None:
    failure = MESSAGE if state == "failed" else None
    found = explained(task(state, ended_at=ago(300)), failure=failure, run=RunFacts("failed"))
    assert (found.verdict, found.answer) == (Verdict.ENDED, answer)
    assert ("failure" in evidence(found)) == (state == "failed")


def test_a_failure_stands_in_one_line() -> None:
    found = explained(
        task("failed"), failure={"error": "JobFailedError", "message": "one\ntwo \x1b[31m" + "x" * 999}
    )
    line = evidence(found)["failure"]
    assert line.startswith("JobFailedError: one two [31mxxx")
    assert len(line) == 300
    assert line.isprintable()


def test_a_failure_that_somebody_else_wrote_reaches_no_terminal_as_it_is() -> None:
    found = explained(task("failed"), failure={"error": "\x1b[31m" + "E" * 99})
    assert found.answer == f"Ended: it failed in try 1, with [31m{'E' * 53}...."


def test_a_failure_that_no_retry_mends_says_so() -> None:
    failure = Outcome("id", error=RuntimeEnvError("no such package")).failure()
    found = explained(task("failed"), failure=failure)
    assert found.answer == "Ended: it failed in try 1, with RuntimeEnvError."
    assert found.advice[0] == "Another try would end the same: mend first what the failure says."


def test_a_failure_before_it_is_named_with_the_command_that_explains_it() -> None:
    upstream = [
        Upstream("mid", {"upstream_failed": 1}),
        Upstream("first", {"failed": 1, "success": 2}, False),
    ]
    found = explained(task("upstream_failed"), upstream=upstream)
    assert evidence(found)["failed"] == "mid (upstream_failed), first (1 failed, 2 success)"
    assert found.advice[0] == "`airflow raytenant explain etl scheduled__2026-12-01 first`"


def test_a_task_that_is_not_scheduled_names_what_it_waits_for_and_what_stands_in_front() -> None:
    upstream = [
        Upstream("transform", {"none": 1}),
        Upstream("check", {"success": 1}),
        Upstream("extract", {"running": 2, "success": 5}, direct=False),
        Upstream("list", {"success": 1}, direct=False),
    ]
    found = explained(task(None), upstream=upstream)
    assert (found.verdict, found.answer) == (
        Verdict.UPSTREAM,
        "Not scheduled yet: 1 of 2 tasks before it is not done.",
    )
    known = evidence(found)
    assert (known["waits for"], known["in front"]) == ("transform (none)", "extract (2 running, 5 success)")
    assert found.advice == ("`airflow raytenant explain etl scheduled__2026-12-01 extract`",)


def test_the_only_task_before_it_is_not_counted() -> None:
    found = explained(task(None, try_number=0), upstream=[Upstream("extract", {"running": 1})])
    assert found.answer == "Not scheduled yet: the task before it is not done."
    assert evidence(found)["task"] == "etl.load[3], not scheduled"


def test_a_failed_task_before_it_does_not_count_as_open() -> None:
    found = explained(task(None), upstream=[Upstream("a", {"failed": 1}), Upstream("b", {"skipped": 1})])
    assert found.verdict is Verdict.NOT_SCHEDULED


@pytest.mark.parametrize(
    ("of", "more", "verdict", "answer"),
    [
        ({}, {"past": Past("yesterday", "failed")}, Verdict.PAST, "in the run before it is failed"),
        ({}, {"past": Past("yesterday", None)}, Verdict.PAST, "in the run before it is not done"),
        ({}, {"past": Past("yesterday", "success")}, Verdict.NOT_SCHEDULED, "the scheduler is about to look"),
        ({"is_mapped": True, "map_index": -1}, {}, Verdict.NOT_SCHEDULED, "Not mapped yet"),
        ({}, {"processes": replace(PROCESSES, schedulers=DEAD)}, Verdict.NO_SCHEDULER, "none is alive"),
    ],
)
def test_nothing_before_it_is_open(
    of: dict[str, Any], more: dict[str, Any], verdict: Verdict, answer: str
) -> None:
    found = explained(task(None, **of), **more)
    assert (found.verdict, answer in found.answer) == (verdict, True), found


@pytest.mark.parametrize(
    ("at", "answer"),
    [
        (
            NOW + timedelta(seconds=250),
            "Waits for its next try in 4m 10s (2026-12-01 12:04:10 UTC): try 2 failed 50s ago.",
        ),
        (ago(5), "Its next try is due, the scheduler is about to take it: try 2 failed 50s ago."),
        (None, "Waits for its next try: try 2 failed 50s ago."),
    ],
)
def test_a_retry_says_until_when(at: Any, answer: str) -> None:
    found = explained(task("up_for_retry", retry_at=at, ended_at=ago(50), try_number=2), failure=MESSAGE)
    assert (found.verdict, found.answer) == (Verdict.RETRY, answer)
    assert evidence(found)["failure"] == "JobKilledError: the job was killed by SIGKILL"


@pytest.mark.parametrize("state", ["restarting", "up_for_reschedule", "awaiting_input", "something new"])
def test_other_states_have_a_sentence_too(state: str) -> None:
    assert explained(task(state)).verdict is Verdict.OTHER
