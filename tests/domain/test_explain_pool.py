"""Why a scheduled task does not start: an answer of its own for every case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_raytenant.domain.explanation import Verdict
from airflow_provider_raytenant.domain.pausing import Target, with_pauses
from airflow_provider_raytenant.domain.pool_rows import Change
from airflow_provider_raytenant.domain.waiting_facts import (
    HeldBack,
    Line,
    PlanFacts,
    Settings,
)
from tests.domain.explain_world import (
    ALIVE,
    DEAD,
    DESCRIPTION,
    PROCESSES,
    evidence,
    explained,
    planned,
    pool,
    task,
)

ELSEWHERE = pool(2, 1, name="default_pool", description="Default pool")
PAUSED = with_pauses(DESCRIPTION, [Target("tenant", "acme")])
OTHERS = (planned(name="ray.globex", occupied=10), planned(name="ray.initech", occupied=0))
SMALL = {"pool": pool(2, 0), "plan": PlanFacts(planned(wanted=2), None, OTHERS)}


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
