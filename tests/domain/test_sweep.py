from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.job_spec import TryIdentity
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.sweep import (
    OwnJob,
    Standing,
    TaskNow,
    TasksNow,
    by_short_id,
    deletable,
    find_orphans,
    old_records,
    own_jobs,
    pool_of,
    short_id,
    standing,
    task_state,
    uncounted,
)

TI_ID = "01976b4e-0000-7000-8000-000000000001"
OTHER_ID = "01976b4e-0000-7000-8000-000000000002"
IDENTITY = TryIdentity("prod", "acme", "etl", "manual__1", "load", 3, 2, TI_ID)
STATES = [
    None,
    "removed",
    "scheduled",
    "queued",
    "running",
    "success",
    "restarting",
    "failed",
    "up_for_retry",
    "up_for_reschedule",
    "upstream_failed",
    "skipped",
    "deferred",
    "awaiting_input",
]
"""Every state of Airflow 3.3."""


def info(identity: TryIdentity = IDENTITY, status: str = "RUNNING", **more: Any) -> JobInfo:
    metadata = {**identity.metadata(), "raytenant.slots": "2", **more.pop("metadata", {})}
    return JobInfo(
        **{"submission_id": identity.submission_id, **more}, status=JobStatus(status), metadata=metadata
    )


def own(identity: TryIdentity = IDENTITY, status: str = "RUNNING", **more: Any) -> OwnJob:
    return OwnJob(info(identity, status, **more), identity)


def adoptable() -> OwnJob:
    return own(metadata={"raytenant.adoptable": "true"})


def tasks(*now: TaskNow) -> TasksNow:
    """All of them the task of IDENTITY; the last one is the one that it has now."""
    return TasksNow({t.ti_id: t for t in now}, {own().key: t for t in now})


# -- whose job it is -------------------------------------------------------------------------------


def test_a_job_whose_id_and_metadata_agree_is_ours() -> None:
    assert own_jobs([info()], "prod") == [own()]
    assert own_jobs([info(replace(IDENTITY, map_index=-1))], "prod")[0].task == "etl.load"
    assert own().task == "etl.load[3]"
    assert own().slots == 2


def test_a_job_of_another_deployment_is_not() -> None:
    assert own_jobs([info(replace(IDENTITY, deployment="staging"))], "prod") == []
    assert own_jobs([info()], "staging") == []


def test_a_job_that_copied_our_metadata_is_not() -> None:
    assert own_jobs([info(submission_id="raysubmit_1")], "prod") == []
    # ... nor one that has our id, but says that it belongs to another try.
    assert own_jobs([info(metadata={"raytenant.ti_id": OTHER_ID})], "prod") == []


@pytest.mark.parametrize("name", list(IDENTITY.metadata()))
def test_metadata_that_lacks_a_part_makes_no_job_ours(name: str) -> None:
    job = info()
    metadata = {key: value for key, value in job.metadata.items() if key != name}
    assert own_jobs([replace(job, metadata=metadata)], "prod") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("map_index", "99999999999"),
        ("map_index", "-2"),
        ("map_index", "x"),
        ("try_number", "02"),
        ("try_number", "٢"),
        ("try_number", "2" * 5000),
        ("run_id", "a\0b"),
        ("run_id", "\ud800"),
        ("run_id", "\x1b[2J"),
        ("run_id", "x" * 251),
        ("run_id", ""),
        ("run_id", 7),
        ("run_id", None),
        ("ti_id", "7"),
        ("ti_id", TI_ID.replace("-", "")),
        ("ti_id", "{" + TI_ID + "}"),
    ],
)
def test_what_the_database_would_choke_on_is_not_ours_even_with_the_right_id(name: str, value: Any) -> None:
    """A tenant's job may bring any metadata, and can compute the id for it: it must not stop the sweep."""
    values = {**vars(IDENTITY), name: value}
    try:
        name_of_it = TryIdentity(**values).submission_id
    except (UnicodeEncodeError, TypeError):
        name_of_it = "x"
    job = info(submission_id=name_of_it, metadata={f"raytenant.{name}": value})
    assert own_jobs([job], "prod") == []


def test_slots_that_are_no_number_are_none() -> None:
    assert [own(metadata={"raytenant.slots": text}).slots for text in ("x", "-1", "9" * 5000, "²")] == [
        None
    ] * 4


# -- who is wanted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("job", [own(), adoptable()], ids=["deferrable", "adoptable"])
def test_the_state_of_its_own_try(state: str | None, job: OwnJob) -> None:
    found = standing(job, tasks(TaskNow(TI_ID, state, 2)))
    if state in ("queued", "running", "deferred"):
        assert found is Standing.WANTED
    elif job.adoptable and state in ("up_for_retry", "scheduled"):
        assert found is Standing.FOR_RETRY
    elif job.adoptable and state is None:
        assert found is Standing.UNCLEAR
    else:
        assert found is Standing.ORPHAN


@pytest.mark.parametrize("state", STATES)
def test_a_later_try_wants_only_what_it_can_adopt(state: str | None) -> None:
    later = tasks(TaskNow(OTHER_ID, state, 3))
    assert standing(own(), later) is Standing.ORPHAN
    expected = Standing.ORPHAN
    if state in ("up_for_retry", "scheduled", "queued", "running"):
        expected = Standing.FOR_RETRY
    elif state is None:
        expected = Standing.UNCLEAR
    assert standing(adoptable(), later) is expected


def test_a_retry_that_waits_has_the_number_of_the_try_before() -> None:
    assert standing(adoptable(), tasks(TaskNow(OTHER_ID, "up_for_retry", 2))) is Standing.FOR_RETRY


def test_a_run_that_was_made_anew_adopts_nothing() -> None:
    assert standing(adoptable(), tasks(TaskNow(OTHER_ID, "running", 1))) is Standing.ORPHAN


def test_a_task_that_vanished_wants_nothing() -> None:
    assert standing(own(), TasksNow()) is Standing.ORPHAN
    assert standing(adoptable(), TasksNow()) is Standing.ORPHAN


def test_an_unclear_job_is_an_orphan_if_the_next_look_finds_it_so_and_stays_one() -> None:
    job, cleared = adoptable(), tasks(TaskNow(OTHER_ID, None, 2))
    first = find_orphans([job], cleared)
    assert (first.orphans, first.unclear) == ((), {job.submission_id})
    second = find_orphans([job], cleared, first.unclear)
    assert second.orphans == (job,)
    assert find_orphans([job], cleared, second.unclear).orphans == (job,)
    # A scheduler that restarts gives the task back within a second or two.
    back = tasks(TaskNow(OTHER_ID, "scheduled", 3))
    assert find_orphans([job], back, first.unclear).orphans == ()


def test_ended_jobs_are_no_orphans() -> None:
    assert (
        find_orphans(
            [own(status=status) for status in ("SUCCEEDED", "FAILED", "STOPPED")], TasksNow()
        ).orphans
        == ()
    )


# -- which records go ------------------------------------------------------------------------------


def ended(number: int, end_time: int | None, **more: Any) -> OwnJob:
    identity = replace(IDENTITY, ti_id=f"01976b4e-0000-7000-8000-{number:012d}")
    return own(identity, "SUCCEEDED", end_time=end_time, **more)


def test_records_go_the_oldest_first_and_only_so_many() -> None:
    records = [ended(1, 3000), ended(2, 1000), ended(3, 2000), ended(4, 9000)]
    assert old_records(records, before=3, at_most=2) == [records[1], records[2]]
    assert old_records(records, before=3, at_most=9) == [records[1], records[2], records[0]]


def test_a_record_without_an_end_counts_from_its_submit_and_one_without_either_stays() -> None:
    submitted, timeless = ended(1, None, start_time=1000), ended(2, None)
    assert old_records([submitted, timeless], before=2, at_most=9) == [submitted]


def test_live_jobs_have_no_old_record() -> None:
    assert old_records([own(start_time=1000)], before=2, at_most=9) == []


@pytest.mark.parametrize("state", STATES)
def test_a_record_stays_while_its_try_may_still_read_it(state: str | None) -> None:
    record = own(status="SUCCEEDED")
    finished = state in (None, "success", "failed", "skipped", "upstream_failed", "removed")
    assert deletable([record], tasks(TaskNow(TI_ID, state, 2))) == ([record] if finished else [])


def test_a_record_goes_when_its_task_has_gone_on_or_vanished_unless_it_may_be_adopted() -> None:
    later = tasks(TaskNow(OTHER_ID, "running", 3))
    record, kept = own(status="FAILED"), own(status="FAILED", metadata={"raytenant.adoptable": "true"})
    assert deletable([record, kept], later) == [record]
    assert deletable([record, kept], TasksNow()) == [record, kept]


# -- in words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ([TaskNow(TI_ID, "deferred", 2)], "deferred"),
        ([TaskNow(TI_ID, None, 2)], "cleared"),
        ([TaskNow(OTHER_ID, "running", 3)], "now try 3: running"),
        ([TaskNow(OTHER_ID, None, 2)], "cleared"),
        ([], "gone"),
    ],
)
def test_the_task_of_a_job_in_words(now: list[TaskNow], words: str) -> None:
    assert task_state(own(), tasks(*now)) == words


def test_a_job_is_found_by_its_whole_id_or_the_beginning_of_its_hash() -> None:
    jobs = [ended(number, None) for number in range(50)]
    for job in jobs:
        assert by_short_id(jobs, job.submission_id) == [job]
        assert job in by_short_id(jobs, short_id(job))
        assert by_short_id(jobs, short_id(job)[:3]) == []
        assert len(short_id(job)) == 8
    assert by_short_id(jobs, "acme-etl") == []
    assert by_short_id(jobs, "") == []


@given(st.text())
def test_any_text_for_an_id_is_harmless(text: str) -> None:
    assert by_short_id([own()], text) in ([], [own()])


@pytest.mark.parametrize(
    ("now", "slots"),
    [
        # Its own try.
        (TaskNow(TI_ID, "deferred", 1), {}),
        (TaskNow(TI_ID, "running", 1), {}),
        (TaskNow(TI_ID, "failed", 1), {"ray.acme": 4}),
        # Cleared; then a later try that holds slots for it.
        (TaskNow("another", None, 2), {"ray.acme": 4}),
        (TaskNow("another", "scheduled", 2), {"ray.acme": 4}),
        (TaskNow("another", "queued", 2), {}),
        (TaskNow("another", "deferred", 2), {}),
        (None, {"ray.acme": 4}),
    ],
)
def test_a_live_job_is_uncounted_while_no_try_of_its_task_holds_slots(
    now: TaskNow | None, slots: dict[str, int]
) -> None:
    about = {"raytenant.pool": "ray.acme", "raytenant.slots": "2"}
    job = own(metadata={**IDENTITY.metadata(), **about})
    ended = own(status="SUCCEEDED", metadata={**IDENTITY.metadata(), **about})
    nameless = own(metadata={**IDENTITY.metadata(), "raytenant.slots": "2"})
    assert uncounted([job, job, ended, nameless], tasks(now) if now else TasksNow()) == slots


@pytest.mark.parametrize(
    ("said", "has", "counts"),
    [
        # A cluster policy moved the task, which its worker was not told.
        ("ray.acme", "ray.acme.backfill", "ray.acme.backfill"),
        ("ray.acme.large", "ray.acme.backfill", "ray.acme.backfill"),
        (None, "ray.acme", "ray.acme"),
        # It left the tenant's pools, and the job did not.
        ("ray.acme", "default_pool", "ray.acme"),
        ("ray.acme", "ray.acmes", "ray.acme"),
        ("ray.acme", "ray.globex", "ray.acme"),
        ("ray.acme", None, "ray.acme"),
    ],
)
@pytest.mark.parametrize("ti_id", [TI_ID, OTHER_ID])
def test_a_job_counts_for_the_pool_that_its_task_has_in_airflow(
    ti_id: str, said: str | None, has: str | None, counts: str
) -> None:
    job = own(metadata={} if said is None else {"raytenant.pool": said})
    now = tasks(TaskNow(ti_id, None, 3, has))
    assert pool_of(job, now) == counts
    assert uncounted([job], now) == {counts: 2}
    assert pool_of(job, TasksNow()) == said
