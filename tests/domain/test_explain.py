"""Why a task waits: an answer of its own for every case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_raytenant.domain.explanation import Verdict
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.domain.pausing import Target, with_pauses
from airflow_provider_raytenant.domain.pool_rows import Change
from airflow_provider_raytenant.domain.waiting_facts import (
    HeldBack,
    Line,
    Past,
    PlanFacts,
    RunFacts,
    Runs,
    Settings,
    Upstream,
)
from airflow_provider_raytenant.exceptions import JobKilledError, RuntimeEnvError
from tests.domain.explain_world import (
    ALIVE,
    DEAD,
    DESCRIPTION,
    NOW,
    PROCESSES,
    ago,
    evidence,
    explained,
    job,
    planned,
    pool,
    task,
)

ELSEWHERE = pool(2, 1, name="default_pool", description="Default pool")
PAUSED = with_pauses(DESCRIPTION, [Target("tenant", "acme")])
OTHERS = (planned(name="ray.globex", occupied=10), planned(name="ray.initech", occupied=0))
SMALL = {"pool": pool(2, 0), "plan": PlanFacts(planned(wanted=2), None, OTHERS)}
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


# -- the pool ------------------------------------------------------------------------------------------


def test_in_line_says_place_what_is_before_it_who_holds_and_what_has_to_happen() -> None:
    found = explained()
    assert found.verdict is Verdict.IN_LINE
    assert found.answer == (
        "Waits in line, 3rd of 7: starts when 9 more slots of ray.acme come free; "
        "2 tasks with 6 slots stand before it."
    )
    assert found.evidence == (
        ("task", "etl.load[3], try 1, scheduled for 12m 5s"),
        ("run", "scheduled__2026-12-01"),
        ("request", "4 slots of pool ray.acme, tenant acme"),
        ("line", "3rd of 7; before it 2 tasks with 6 slots"),
        ("pool", "12 slots, 11 held, 1 free; at most 16"),
        ("plan", planned().why),
    )
    # The others' pools share the slots, but the holders of their own come first.
    assert [holder.task for holder in found.holders] == ["daily.stats[3]", "daily.sums"]
    assert "jobs show e710f6b7" in found.advice[1]


@pytest.mark.parametrize(
    ("line", "occupied", "slots", "words"),
    [
        (Line(1, 1), 12, 4, "1st of 1: starts when 4 more slots of ray.acme come free."),
        (Line(1, 1), 12, 1, "1st of 1: starts when 1 more slot of ray.acme comes free."),
        (
            Line(2, 2, (3,)),
            12,
            1,
            "starts when 4 more slots of ray.acme come free; 1 task with 3 slots stands before it.",
        ),
        # More is held than the pool has: it drains first.
        (Line(1, 1), 14, 2, "starts when 4 more slots"),
    ],
)
def test_what_has_to_come_free(line: Line, occupied: int, slots: int, words: str) -> None:
    found = explained(task(slots=slots), line=line, pool=pool(12, occupied))
    assert found.verdict is Verdict.IN_LINE
    assert words in found.answer


@pytest.mark.parametrize(
    ("of", "more", "verdict", "answer"),
    [
        ({}, {"pool": None}, Verdict.NO_POOL, "Can never start: there is no pool ray.acme."),
        (
            {},
            {"pool": pool(0, 0, description=PAUSED)},
            Verdict.POOL_PAUSED,
            "Waits while tenant acme is paused",
        ),
        (
            {"slots": 17},
            {},
            Verdict.NEVER,
            "asks for 17 slots, and 16, all that shared/cpu has today, is the most",
        ),
        (
            {"slots": 17},
            {"plan": PlanFacts(planned(most=8), 8)},
            Verdict.NEVER,
            "and 8, the limit of tenant acme, is the most that ray.acme can have",
        ),
        (
            {},
            {"pool": pool(0, 0), "plan": PlanFacts(planned(wanted=0, most=0))},
            Verdict.NO_NODES,
            "no alive node of shared/cpu has room for even one slot",
        ),
        (
            {"slots": 1},
            {"plan": PlanFacts(planned(most=0), 0)},
            Verdict.NEVER,
            "and 0, the limit of tenant acme",
        ),
        ({}, {"plan": None}, Verdict.NEVER, "the tenant file asks for no pool ray.acme any more"),
        ({}, {"pool": ELSEWHERE, "plan": None}, Verdict.NEVER, "pool default_pool has 2 in all"),
        (
            {"slots": 2},
            {"pool": ELSEWHERE, "plan": None, "line": Line(1, 1)},
            Verdict.IN_LINE,
            "starts when 1 more slot of default_pool",
        ),
        (
            {"slots": 99},
            {"pool": replace(ELSEWHERE, slots=-1), "plan": None, "line": Line(5, 5, (9,))},
            Verdict.NEXT_PASS,
            "default_pool has room for its 99 slots",
        ),
        ({}, {"processes": replace(PROCESSES, schedulers=())}, Verdict.NO_SCHEDULER, "none is alive"),
        (
            {},
            {"line": Line(None, 6, (), HeldBack("max_active_tasks", 16, 16))},
            Verdict.HELD_BACK,
            "Held back by max_active_tasks: 16 of 16 tasks of the run are queued or running.",
        ),
        (
            {},
            {"line": Line(None, 6, (), HeldBack("max_active_tasks", 2, 16))},
            Verdict.HELD_BACK,
            "2 of 16 tasks of the run are queued or running, and others of the run come first.",
        ),
        (
            {},
            {"line": Line(None, 6, (), HeldBack("max_active_tis_per_dag", 2, 2))},
            Verdict.HELD_BACK,
            "Held back by max_active_tis_per_dag: 2 of 2 of its instances are active or come before it.",
        ),
        ({"slots": 1}, {"line": Line(1, 7)}, Verdict.NEXT_PASS, "ray.acme has room for its 1 slot"),
        # The scheduler goes around those before it that do not fit.
        ({"slots": 1}, {}, Verdict.NEXT_PASS, "ray.acme has room"),
        (
            {"slots": 1},
            {"line": Line(1, 7, seen_before=16)},
            Verdict.HIDDEN,
            "it looks at 16 tasks a pass, and 16 come before it",
        ),
        (
            {"slots": 1},
            {"line": Line(1, 7), "settings": Settings(executing=32)},
            Verdict.EXECUTOR_FULL,
            "32 tasks are queued or running",
        ),
        (
            {"slots": 1},
            {"line": Line(1, 7, seen_before=99), "settings": Settings(0, 0, 99)},
            Verdict.NEXT_PASS,
            "ray.acme has room",
        ),
        (
            {},
            {"plan": PlanFacts(planned(wanted=15)), "line": Line(1, 7)},
            Verdict.NEXT_SYNC,
            "it grows from 12 to 15 slots",
        ),
        (
            {},
            {
                "plan": PlanFacts(planned(wanted=15)),
                "line": Line(1, 7),
                "processes": replace(PROCESSES, controllers=DEAD),
            },
            Verdict.NO_CONTROLLER,
            "ray.acme has 12 slots and should have 15, but no controller is alive",
        ),
        # A slot that was given another shape while tasks hold old ones: no sync changes that pool.
        (
            {},
            {"plan": PlanFacts(planned(wanted=15, change=Change.REFUSED)), "line": Line(1, 7)},
            Verdict.IN_LINE,
            "starts when 3 more slots",
        ),
        (
            {},
            SMALL,
            Verdict.POOL_SMALL,
            "Waits for ray.acme to grow to 4 slots: it has 2 and could have 16, but other pools hold 10.",
        ),
    ],
)
def test_a_scheduled_task(of: dict[str, Any], more: dict[str, Any], verdict: Verdict, answer: str) -> None:
    found = explained(task(**of), **more)
    assert (found.verdict, answer in found.answer) == (verdict, True), found


def test_what_comes_before_it_in_all_pools_is_said_where_the_scheduler_sees_less() -> None:
    assert "scheduler" not in evidence(explained(line=Line(1, 7, seen_before=15)))
    line = evidence(explained(line=Line(1, 7, seen_before=40)))["scheduler"]
    assert line == "looks at 16 tasks a pass (max_tis_per_query, parallelism); 40 of all pools come before it"
    # Those of its own line would start before it anyhow.
    assert "scheduler" not in evidence(explained(line=Line(41, 50, (1,) * 40, seen_before=40)))


def test_a_task_that_resumes_says_that_only_its_end_is_left() -> None:
    assert "its job" not in evidence(explained())
    assert "its end on a worker" in evidence(explained(task(resumes=True)))["its job"]


def test_a_pool_that_is_kept_small_by_others_shows_who_they_are() -> None:
    found = explained(**SMALL)
    assert evidence(found)["others"] == "hold slots of shared/cpu, too: ray.globex 10"
    assert found.holders[-1].task == "model.train"


def test_a_silent_cluster_is_said_and_the_database_still_answers() -> None:
    found = explained(plan=None, silent={"shared": "Ray at http://x cannot be reached\n(refused)"})
    assert found.verdict is Verdict.IN_LINE
    assert evidence(found)["cluster"] == "shared is silent: Ray at http://x cannot be reached (refused)"


def test_slots_that_are_nobodys_come_with_the_command_that_frees_them() -> None:
    found = explained(plan=PlanFacts(planned(), None, (), 3))
    assert evidence(found)["nobody's"].startswith(
        "3 slots held by jobs whose task is over: `airflow raytenant jobs sweep`"
    )


def test_without_a_controller_the_first_advice_is_to_start_one() -> None:
    found = explained(processes=replace(PROCESSES, controllers=()))
    assert evidence(found)["controller"] == "none has run within a week: sizes do not follow"
    assert "airflow raytenant controller" in found.advice[0]
    assert not any("Nothing is wrong" in advice for advice in found.advice)
    # One that comes now and then will do.
    assert "controller" not in evidence(explained(processes=replace(PROCESSES, controllers=(), rounds=ALIVE)))


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("ray.acme", {}, "Make it: `airflow raytenant pools sync`."),
        ("ray.acme", {"plan": None, "silent": {"shared": "away"}}, "When its cluster answers again"),
        ("ray.nobody", {"plan": None, "tenant": None}, "The tenant file asks for no such pool"),
        ("mine", {"plan": None, "tenant": None}, "in the UI: Admin, Pools"),
    ],
)
def test_a_pool_that_is_missing_says_who_makes_it(name: str, more: dict[str, Any], words: str) -> None:
    found = explained(task(pool=name), pool=None, **more)
    assert (found.verdict, words in found.advice[0]) == (Verdict.NO_POOL, True), found


def test_a_pause_comes_with_the_command_that_ends_it() -> None:
    found = explained(pool=pool(0, 0, description=PAUSED))
    assert found.answer == "Waits while tenant acme is paused: ray.acme starts nothing new."
    assert found.advice == ("When it may go on: `airflow raytenant resume acme`.",)
    both = with_pauses(DESCRIPTION, [Target("tenant", "acme"), Target("cluster", "shared")])
    found = explained(pool=pool(0, 0, description=both))
    assert "cluster shared and tenant acme are paused" in found.answer
    assert len(found.advice) == 2
    # Whose pool it is, his words.
    assert explained(pool=pool(0, 0, description="; paused with tenant acme; ")).verdict is Verdict.NEVER


# -- executor, trigger, Ray ----------------------------------------------------------------------------

NO_TRIGGERER = {"processes": replace(PROCESSES, triggerers=DEAD)}


@pytest.mark.parametrize(
    ("state", "more", "verdict", "answer"),
    [
        ("queued", {}, Verdict.QUEUED, "waits for the executor to start it: queued 30s ago"),
        ("running", {}, Verdict.SUBMITTING, "Its worker prepares the job, or ends the task: started 20s ago"),
        (
            "running",
            {"of": {"heartbeat_at": ago(600)}},
            Verdict.SUBMITTING,
            "Its worker has been silent for 10m",
        ),
        ("deferred", {}, Verdict.SUBMITTING, "Its trigger is submitting the job"),
        (
            "deferred",
            {"of": {"trigger_taken": False}},
            Verdict.SUBMITTING,
            "Waits until a triggerer takes it over",
        ),
        ("deferred", NO_TRIGGERER, Verdict.NO_TRIGGERER, "its job is not submitted"),
        ("deferred", {"silent": {"shared": "away"}}, Verdict.UNKNOWN, "nobody knows, as shared is silent"),
        ("deferred", {"job": job("PENDING")}, Verdict.JOB_PENDING, "Its job waits in Ray"),
        ("deferred", {"job": job()}, Verdict.JOB_RUNS, "its job is running in Ray, submitted 2m 5s ago"),
        (
            "deferred",
            {"job": job("SUCCEEDED", end_time=int(ago(5).timestamp() * 1000))},
            Verdict.JOB_ENDED,
            "Its job has ended (SUCCEEDED 5s ago); its trigger is about to end the task.",
        ),
        (
            "running",
            {"job": job("FAILED", end_time=int(ago(5).timestamp() * 1000))},
            Verdict.JOB_ENDED,
            "Its job has ended (FAILED 5s ago); its worker is about to end the task.",
        ),
        (
            "deferred",
            {"job": job("FAILED"), **NO_TRIGGERER},
            Verdict.NO_TRIGGERER,
            "no triggerer is alive to end it",
        ),
        ("running", {"of": {"is_ours": False}}, Verdict.RUNS, "Airflow has it as running"),
    ],
)
def test_a_task_that_was_started(state: str, more: dict[str, Any], verdict: Verdict, answer: str) -> None:
    more = dict(more)
    found = explained(task(state, **more.pop("of", {})), **more)
    assert (found.verdict, answer in found.answer) == (verdict, True), found


def test_ray_own_words_and_the_page_stand_beside_a_job() -> None:
    found = explained(
        task("deferred"), job=replace(job("PENDING", message="Waiting for\nresources"), page="http://x/1")
    )
    known = evidence(found)
    assert (known["ray says"], known["dashboard"]) == ("Waiting for resources", "http://x/1")
    assert found.advice[-1] == "`airflow raytenant jobs show e710f6b7`"


def test_a_job_that_runs_while_nobody_follows_it_says_so() -> None:
    known = evidence(explained(task("deferred"), job=job(), **NO_TRIGGERER))
    assert (
        known["triggerer"]
        == "none is alive; the last one was last heard of 10m ago on host-b: nobody follows the job"
    )


def test_a_task_of_somebody_else_is_said_to_be_none_of_a_tenants() -> None:
    of = task(is_ours=False, operator="BashOperator", pool="default_pool", slots=1)
    found = explained(of, pool=ELSEWHERE, plan=None, tenant=None, line=Line(1, 1))
    assert evidence(found)["request"] == "1 slot of pool default_pool; BashOperator is no task of a tenant"
    assert found.verdict is Verdict.NEXT_PASS
