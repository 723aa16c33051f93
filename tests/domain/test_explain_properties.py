"""Whatever the facts are: one sentence first, no error, and nothing that cannot be."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.explain import explain
from airflow_provider_raytenant.domain.explain_words import choices, place, ranges, states
from airflow_provider_raytenant.domain.explanation import Verdict
from airflow_provider_raytenant.domain.heartbeat import Heartbeat
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.pool_rows import Change, ExistingPool, PlannedPool
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.waiting_facts import (
    Facts,
    HeldBack,
    Holder,
    JobFacts,
    Line,
    Past,
    PlanFacts,
    Processes,
    RunFacts,
    Runs,
    Settings,
    TaskFacts,
    Upstream,
)
from airflow_provider_raytenant.domain.wording import count
from tests.domain.explain_world import DESCRIPTION, NOW, PROCESSES
from tests.domain.helpers import seeded

WORDS = st.sampled_from(["load", "a.b", "x" * 80, "run__2026-12-01T00:00:00+00:00", "$(rm)"])
STATES = st.sampled_from(
    [
        None,
        "scheduled",
        "queued",
        "running",
        "deferred",
        "success",
        "failed",
        "skipped",
        "upstream_failed",
        "removed",
        "up_for_retry",
        "up_for_reschedule",
        "restarting",
        "awaiting_input",
        "new",
    ]
)
SLOTS = st.integers(0, 40)
ASKED = st.integers(1, 40)


@st.composite
def instants(draw: st.DrawFn) -> datetime | None:
    seconds = draw(st.none() | st.integers(-(10**6), 10**8))
    return None if seconds is None else NOW - timedelta(seconds=seconds)


BEATS = st.lists(st.builds(Heartbeat, WORDS, st.booleans(), st.floats(0, 10**6)), max_size=2)
TASKS = st.builds(
    TaskFacts,
    WORDS,
    WORDS,
    WORDS,
    st.integers(-1, 5),
    WORDS,
    STATES,
    st.integers(0, 9),
    st.sampled_from(["ray.acme", "ray.globex.large", "default_pool"]),
    ASKED,
    WORDS,
    st.booleans(),
    st.booleans(),
    instants(),
    instants(),
    instants(),
    instants(),
    instants(),
    instants(),
    st.booleans(),
    st.none() | st.booleans(),
)
POOLS = st.builds(
    ExistingPool,
    st.sampled_from(["ray.acme", "default_pool"]),
    st.integers(-1, 40),
    st.sampled_from(["", DESCRIPTION, DESCRIPTION.replace("; `", "; paused with cluster shared; `")]),
    st.booleans(),
    SLOTS,
)
PLANNED = st.builds(
    PlannedPool,
    st.sampled_from(["ray.acme", "ray.globex"]),
    st.none() | SLOTS,
    SLOTS,
    SLOTS,
    WORDS,
    WORDS,
    st.sampled_from(Change),
    SLOTS,
    WORDS,
)
PLANS = st.builds(PlanFacts, PLANNED, st.none() | SLOTS, st.lists(PLANNED, max_size=3), SLOTS)
AHEAD = st.lists(ASKED, max_size=5)
HELD = st.builds(HeldBack, st.sampled_from(["max_active_tasks", "max_active_tis_per_dag"]), SLOTS, SLOTS)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    ahead, seen = draw(AHEAD), draw(st.integers(0, 99))
    if draw(st.booleans()):
        return Line(None, draw(SLOTS), ahead, draw(st.none() | HELD), seen)
    return Line(len(ahead) + 1, len(ahead) + 1 + draw(SLOTS), ahead, None, seen)


HOLDERS = st.builds(
    Holder,
    st.sampled_from(["ray.acme", "ray.globex"]),
    SLOTS,
    WORDS,
    WORDS,
    STATES.map(str),
    WORDS,
    instants(),
    st.none() | WORDS,
)
JOBS = st.builds(
    JobFacts,
    WORDS,
    WORDS,
    st.builds(
        JobInfo,
        WORDS,
        st.sampled_from(JobStatus),
        st.text(),
        start_time=st.none() | st.integers(0, 2 * 10**12),
        end_time=st.none() | st.integers(0, 2 * 10**12),
    ),
    WORDS,
)
RUNS = st.builds(
    RunFacts,
    st.sampled_from(["queued", "running", "success", "failed"]),
    instants(),
    instants(),
    st.builds(Runs, SLOTS, SLOTS, st.none() | SLOTS, st.booleans()),
    st.booleans(),
    st.booleans(),
)
UPSTREAM = st.builds(
    Upstream,
    WORDS,
    st.dictionaries(STATES.map(lambda state: state or "none"), ASKED, min_size=1),
    st.booleans(),
)
FAILURES = st.none() | st.dictionaries(
    st.sampled_from(["error", "message", "retryable"]), st.text() | st.none() | st.booleans()
)
FACTS = st.builds(
    Facts,
    st.just(NOW),
    TASKS,
    RUNS,
    st.lists(UPSTREAM, max_size=4),
    st.none() | st.builds(Past, WORDS, STATES),
    st.none() | POOLS,
    st.none() | WORDS,
    st.none() | PLANS,
    st.dictionaries(WORDS, st.text(), max_size=2),
    st.none() | lines(),
    st.lists(HOLDERS, max_size=9),
    st.none() | JOBS,
    FAILURES,
    st.builds(Processes, BEATS, BEATS, BEATS, BEATS),
    st.builds(Settings, SLOTS, SLOTS, SLOTS),
)
SCHEDULED = st.builds(
    Facts,
    st.just(NOW),
    st.builds(TaskFacts, WORDS, WORDS, WORDS, state=st.just("scheduled"), slots=ASKED),
    pool=POOLS,
    plan=st.none() | PLANS,
    line=lines(),
    holders=st.lists(HOLDERS, max_size=9),
    processes=st.just(PROCESSES),
    silent=st.dictionaries(WORDS, st.text(), max_size=1),
)


@settings(parent=seeded, max_examples=300)
@given(FACTS)
def test_whatever_is_known_there_is_one_sentence_and_every_line_is_one(facts: Facts) -> None:
    found = explain(facts)
    assert found.answer.endswith(".")
    assert found.answer[0].isupper()
    assert found.answer.isprintable()
    assert found.verdict in Verdict
    assert all(label and len(label) < 12 and text.isprintable() for label, text in found.evidence)
    assert [label for label, _ in found.evidence][:3] == ["task", "run", "request"]
    assert all(advice.isprintable() and advice.count("`") % 2 == 0 for advice in found.advice)


@settings(parent=seeded, max_examples=300)
@given(SCHEDULED)
def test_never_and_soon_are_what_the_numbers_say(facts: Facts) -> None:
    found, pool, line = explain(facts), facts.pool, facts.line
    assert pool is not None
    assert line is not None
    slots = facts.task.slots
    free = pool.slots - pool.occupied
    if found.verdict is Verdict.NEVER and facts.plan is not None and pool.is_ours:
        assert slots > facts.plan.pool.most
    if found.verdict is Verdict.NEVER and not pool.is_ours:
        assert slots > pool.slots >= 0
    if found.verdict is Verdict.NEXT_PASS:
        assert pool.slots < 0 or slots <= free
    if found.verdict is Verdict.IN_LINE and line.place is not None:
        assert 1 <= line.place <= line.of
        assert f"{place(line.place)} of {line.of}" in found.answer
        # What is said to be lacking is lacking indeed: all before it and it do not fit into what is free.
        assert sum(line.ahead) + slots > free
    if found.verdict is Verdict.HELD_BACK:
        assert line.held_back is not None


@seeded
@given(st.sets(st.integers(0, 30)))
def test_ranges_name_each_number_and_no_other(numbers: set[int]) -> None:
    named: set[int] = set()
    for part in ranges(numbers).split(", ") if len(numbers) < 10 and numbers else []:
        first, _, last = part.partition(" to ")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == (numbers if len(numbers) < 10 else set())


@seeded
@given(WORDS, st.lists(st.text("abc", min_size=1), max_size=30, unique=True))
def test_choices_name_what_there_is_and_count_the_rest(found: str, allowed: list[str]) -> None:
    text = choices(found, allowed)
    assert text.endswith(f"and {len(allowed) - 10} more") == (len(allowed) > 10)


def test_the_most_alike_comes_first() -> None:
    assert choices("etl_dayly", [f"dag{number}" for number in range(30)] + ["etl_daily"]).startswith(
        "etl_daily, "
    )
    assert choices("x", []) == "none: there is nothing yet"


def test_words_for_numbers() -> None:
    assert [place(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "102nd",
        "111th",
    ]
    assert (count(1, "slot"), count(0, "slot")) == ("1 slot", "0 slots")
    assert (states({"running": 1}), states({"running": 2, "success": 1})) == (
        "running",
        "2 running, 1 success",
    )
