"""Slot-hours of tries: what is held, clipped and summed up, and which tasks are too small for a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.domain.usage_report import (
    Line,
    Owner,
    Span,
    Totals,
    Try,
    UsageReport,
    held,
    pools_of,
    wait,
)

DAY = datetime(2026, 12, 1, tzinfo=UTC)
OWNERS = {
    "ray.acme": Owner("acme", "shared/cpu", Resources(cpus=1, memory=4 << 30)),
    "ray.acme.large": Owner("acme", "shared/cpu", Resources(cpus=1, memory=4 << 30)),
    "ray.acme.gpu": Owner("acme", "shared/gpu", Resources(cpus=8, memory=64 << 30, gpus=1)),
    "ray.globex": Owner("globex", "shared/cpu", Resources(cpus=1, memory=4 << 30)),
}


def at(seconds: float) -> datetime:
    return DAY + timedelta(seconds=seconds)


def span(begin: float, end: float) -> Span:
    return Span(at(begin), at(end))


def one(
    scheduled: float | None,
    queued: float | None,
    started: float | None,
    ended: float | None,
    **more: Any,
) -> Try:
    """A try by its instants in seconds: of ``etl.load``, with one slot of ``ray.acme``, but for ``more``."""
    known = {"pool": "ray.acme", "slots": 1, "dag_id": "etl", "task_id": "load", **more}
    times = [None if seconds is None else at(seconds) for seconds in (scheduled, queued, started, ended)]
    names = ("scheduled", "queued", "started", "ended")
    return Try(**known, **dict(zip(names, times, strict=True)))


def report(tries: Sequence[Try], of: Span) -> UsageReport:
    made = UsageReport(OWNERS, of)
    for each in tries:
        made.add(each)
    return made


def slot_seconds(lines: Sequence[Line]) -> dict[tuple[str, str, str | None], float]:
    return {line[:3]: line.totals.slot_time.total_seconds() for line in lines}


# -- what a try held --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "pieces"),
    [
        # Waits; has its slots; runs, or is deferred; has ended.
        (one(10, None, None, None), []),
        (one(10, 20, None, None), [(20, 100)]),
        (one(10, 20, 30, None), [(20, 100)]),
        (one(10, 20, 30, 60), [(20, 60)]),
        # Ended without a worker.
        (one(10, 20, None, 60), [(20, 60)]),
        (one(None, None, 60, 60), []),
        # Came back from a deferral: waits again, has its slots again, has ended.
        (one(50, 20, 30, None), [(20, 50)]),
        (one(50, 70, 30, None), [(30, 50), (70, 100)]),
        (one(50, 70, 30, 80), [(30, 50), (70, 80)]),
        # ... and was cleared while it waited again.
        (one(50, 20, 30, 60), [(20, 50)]),
        # Marked by a person before it had its slots: the rest is of the try before.
        (one(50, 20, 30, 40), []),
        # Put back by Airflow for being stuck.
        (one(50, None, None, 60), []),
    ],
)
def test_a_try_holds_its_slots_from_the_queue_to_its_end(row: Try, pieces: list[tuple[float, float]]) -> None:
    assert held(row, at(100)) == [(at(begin), at(end)) for begin, end in pieces]


@pytest.mark.parametrize(
    ("row", "seconds"),
    [
        (one(10, 25, 30, None), 15),
        (one(10, 10, None, None), 0),
        (one(10, None, None, None), None),
        (one(None, 20, 30, 40), None),
        # Came back from a deferral: the first wait has been overwritten.
        (one(50, 70, 30, 80), None),
        (one(50, 20, 30, None), None),
    ],
)
def test_the_wait_is_that_of_the_first_leg(row: Try, seconds: float | None) -> None:
    waited = wait(row)
    assert (None if waited is None else waited.total_seconds()) == seconds


instants = st.none() | st.integers(0, 200).map(float)
tries = st.builds(
    one,
    instants,
    instants,
    instants,
    instants,
    pool=st.sampled_from([*OWNERS, "default_pool"]),
    slots=st.integers(1, 9),
    dag_id=st.sampled_from("abc"),
    task_id=st.sampled_from("xyz"),
    usage=st.none() | st.fixed_dictionaries({"peak": st.just({"cpus": 2.0}), "run_seconds": st.just(1)}),
)
"""Whatever a database may hold, in any order of time."""


@given(tries, st.integers(0, 200))
def test_pieces_are_in_order_apart_and_never_behind_the_present(row: Try, now: int) -> None:
    if row.ended is not None:
        row = row._replace(ended=min(row.ended, at(now)))
    edges = [edge for piece in held(row, at(now)) for edge in piece]
    assert edges == sorted(edges)
    # An instant of the future is one of a clock that goes wrong.
    if all(known is None or known <= at(now) for known in row[4:8]):
        assert all(edge <= at(now) for edge in edges)


# -- the span ---------------------------------------------------------------------------------------


@given(st.lists(tries, max_size=8), st.lists(st.integers(0, 250), min_size=2, max_size=5, unique=True))
def test_the_parts_of_a_span_add_up_to_the_whole(rows: list[Try], cuts: list[int]) -> None:
    cuts.sort()
    whole = slot_seconds(report(rows, span(cuts[0], cuts[-1])).by_dag())
    parts: dict[Any, float] = {}
    for begin, end in pairwise(cuts):
        for key, seconds in slot_seconds(report(rows, span(begin, end)).by_dag()).items():
            parts[key] = parts.get(key, 0.0) + seconds
    assert parts == whole


@given(tries, st.integers(0, 200), st.integers(0, 200))
def test_no_try_holds_more_than_its_slots_for_the_whole_span(row: Try, begin: int, length: int) -> None:
    for line in report([row], span(begin, begin + length)).by_dag():
        assert 0 < line.totals.slot_time.total_seconds() <= row.slots * length
        assert line.totals.tries == 1


def test_what_lies_beyond_the_span_does_not_count() -> None:
    rows = [
        one(0, 10, 11, 20, dag_id="before"),
        one(0, 10, 11, 50, dag_id="into", slots=3),
        one(0, 60, 61, None, dag_id="on"),
        one(0, 10, 11, 150, dag_id="around"),
    ]
    lines = report(rows, span(20, 100)).by_dag()
    assert {line.dag_id: line.totals.slot_hours * 3600 for line in lines} == {
        "into": 3 * 30,
        "on": 40,
        "around": 80,
    }


# -- sums -------------------------------------------------------------------------------------------


@given(st.lists(tries, max_size=20), st.randoms(use_true_random=False))
def test_dags_add_up_to_their_tenant_in_whatever_order_tries_come(rows: list[Try], random: Any) -> None:
    of = span(20, 150)
    made = report(rows, of)
    together: dict[tuple[str, str], Totals] = {}
    for line in made.by_dag():
        together.setdefault(line[:2], Totals()).add(line.totals)
    assert {line[:2]: line.totals for line in made.by_tenant()} == together
    assert sum(line.totals.tries for line in made.by_tenant()) == sum(
        bool(report([row], of).by_dag()) for row in rows
    )
    random.shuffle(rows)
    again = report(rows, of)
    assert (again.by_tenant(), again.by_dag(), again.tiny()) == (made.by_tenant(), made.by_dag(), made.tiny())


@given(st.lists(tries, max_size=20))
def test_groups_stay_apart_and_the_largest_of_each_comes_first(rows: list[Try]) -> None:
    made = report(rows, span(0, 200))
    tenants = [(line.group, -line.totals.slot_time, line.tenant) for line in made.by_tenant()]
    assert tenants == sorted(tenants)
    dags = [(line.tenant, line.group, -line.totals.slot_time, line.dag_id or "") for line in made.by_dag()]
    assert dags == sorted(dags)
    assert len({line[:2] for line in made.by_tenant()}) == len(tenants)


def test_pools_of_a_group_count_together_groups_do_not_and_other_pools_not_at_all() -> None:
    rows = [one(0, 0, 1, 10, pool=pool) for pool in (*OWNERS, "default_pool")]
    assert slot_seconds(report(rows, span(0, 99)).by_tenant()) == {
        ("acme", "shared/cpu", None): 20,
        ("globex", "shared/cpu", None): 10,
        ("acme", "shared/gpu", None): 10,
    }


def test_waits_are_of_those_that_are_known() -> None:
    rows = [one(0, 10, 11, 90), one(0, 30, 31, None), one(50, 70, 5, 80)]
    (line,) = report(rows, span(0, 100)).by_tenant()
    assert line.totals.mean_wait == timedelta(seconds=20)
    assert line.totals.worst_wait == timedelta(seconds=30)
    (line,) = report(rows[2:], span(0, 100)).by_tenant()
    assert (line.totals.mean_wait, line.totals.worst_wait) == (None, None)


def test_used_is_what_the_peaks_would_have_needed_where_they_are_known() -> None:
    rows = [
        one(0, 0, 1, 30, slots=4, usage={"peak": {"cpus": 1.5}}),
        one(0, 0, 1, 10, slots=2, usage={"peak": {"cpus": 1, "memory": 16 << 30}}),
        one(0, 0, 1, 60, slots=1),
    ]
    (line,) = report(rows, span(0, 100)).by_tenant()
    assert line.totals.used == (2 * 30 + 4 * 10) / (4 * 30 + 2 * 10)
    assert line.totals.known == 140 / 200
    (line,) = report(rows[2:], span(0, 100)).by_tenant()
    assert (line.totals.used, line.totals.known) == (None, 0)


@pytest.mark.parametrize(
    "usage",
    [
        "text",
        7,
        [],
        {},
        {"peak": None, "run_seconds": None},
        {"peak": 3, "run_seconds": "3"},
        {"peak": {"cpus": -1}, "run_seconds": -1},
        {"peak": {"cpus": "4"}, "run_seconds": True},
        {"peak": {"memory": 1.5}, "run_seconds": nan},
        {"peak": {"custom": [1]}, "run_seconds": inf},
        {"peak": {"cpus": nan}, "run_seconds": 10**400},
    ],
)
def test_an_xcom_that_is_none_of_ours_is_passed_over(usage: Any) -> None:
    made = report([one(0, 0, 1, 10, usage=usage)] * 5, span(0, 100))
    assert made.by_tenant()[0].totals.known == 0
    assert made.tiny() == []


# -- tasks that are too small -----------------------------------------------------------------------


def worked(work: float, whole: float, **more: Any) -> Try:
    """A try that held its slots for ``whole`` seconds and worked for ``work`` of them."""
    return one(0, 10, 11, 10 + whole, usage={"run_seconds": work}, **more)


@pytest.mark.parametrize(
    ("works", "whole", "named"),
    [
        ([0.5, 0.5, 0.5], 4, True),
        # One more or less is not the median.
        ([0.5, 300, 0.5], 4, True),
        ([0.5, 300, 300], 4, False),
        # Too few to tell.
        ([0.5, 0.5], 4, False),
        # The work is the larger part.
        ([3, 3, 3], 4, False),
        ([2, 2, 2], 4, False),
        # So much work that a wait is no reason.
        ([10, 10, 10], 60, False),
        ([9.9, 9.9, 9.9], 60, True),
        ([0, 0, 0], 4, True),
    ],
)
def test_a_task_is_too_small_if_its_start_costs_more_than_its_work(
    works: list[float], whole: float, named: bool
) -> None:
    tiny = report([worked(work, whole) for work in works], span(0, 1000)).tiny()
    assert [task[:3] for task in tiny] == [("acme", "etl", "load")] * named


def test_it_is_shown_with_its_tries_medians_and_slots() -> None:
    rows = [worked(1, 5), worked(2, 8), worked(3, 7, slots=2), one(0, 10, 11, 99)]
    (task,) = report(rows, span(0, 1000)).tiny()
    assert task == ("acme", "etl", "load", 3, 2.0, 4.0, 2)


def test_the_one_that_wastes_most_comes_first() -> None:
    rows = [
        *[worked(1, 4, task_id="few")] * 3,
        *[worked(1, 4, task_id="many")] * 9,
        *[worked(1, 4, task_id="wide", slots=8)] * 3,
        *[worked(1, 9, task_id="slow")] * 4,
    ]
    tiny = report(rows, span(0, 1000)).tiny()
    assert [task.task_id for task in tiny] == ["wide", "slow", "many", "few"]


def test_what_needs_a_gpu_or_has_not_ended_or_lies_beyond_the_span_is_not_named() -> None:
    of = span(0, 1000)
    assert report([worked(1, 4, pool="ray.acme.gpu")] * 3, of).tiny() == []
    assert report([worked(1, 4)._replace(ended=None)] * 3, of).tiny() == []
    assert report([worked(1, 4)] * 3, span(500, 1000)).tiny() == []


# -- whose a pool is --------------------------------------------------------------------------------


def test_every_pool_of_every_tenant_counts_whether_it_is_enabled_now_or_not() -> None:
    slots = {
        "cpu": {"slot": {"cpus": 1, "memory": "4GiB"}},
        "gpu": {"slot": {"cpus": 8, "memory": "64GiB", "gpus": 1}},
    }
    file = TenantFile.model_validate(
        {
            "deployment": "prod",
            "clusters": {
                "shared": {"ray_conn_id": "ray", "groups": slots},
                "own": {"ray_conn_id": "other", "groups": {"gpu": slots["gpu"]}},
            },
            "tenants": {
                "acme": {"name": "acme", "cluster": "shared"},
                "globex": {"name": "globex", "cluster": "own"},
            },
        }
    )
    owners = pools_of(file)
    assert {pool: owner[:2] for pool, owner in owners.items()} == {
        "ray.acme": ("acme", "shared/cpu"),
        "ray.acme.large": ("acme", "shared/cpu"),
        "ray.acme.backfill": ("acme", "shared/cpu"),
        "ray.acme.gpu": ("acme", "shared/gpu"),
        "ray.acme.gpu.large": ("acme", "shared/gpu"),
        "ray.acme.gpu.backfill": ("acme", "shared/gpu"),
        "ray.globex": ("globex", "own/gpu"),
        "ray.globex.large": ("globex", "own/gpu"),
        "ray.globex.backfill": ("globex", "own/gpu"),
    }
    assert owners["ray.acme.gpu.large"].slot == Resources(cpus=8, memory=64 << 30, gpus=1)
