"""The pools hold the cluster and fill it: a backfill beside live runs borrows, and never asks too much."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_raytenant.domain.resources import Resources
from stack import flights
from stack.stack import Stack
from stack.usage import UsageSampler
from tests.e2e.conftest import CAPACITY
from tests.e2e.runs import controller, finish, start, until

DAYS = [date(2013, 1, 1) + timedelta(days=number) for number in range(14)]
LIVE_DAYS = [datetime(2013, 1, day, tzinfo=UTC) for day in (20, 21, 22)]
CLUSTER = Resources(cpus=CAPACITY, memory=CAPACITY * 512 * 1024**2)


@pytest.fixture(scope="module")
def backfilled(stack: Stack) -> UsageSampler:
    """A backfill of 14 days beside live runs, with a controller at work, sampled all along."""
    live: list[tuple[str, str]] = []
    for dag_id in ("acme_daily_delays", "globex_delay_model"):
        stack.api.wait_dag(dag_id)
        stack.api.unpause(dag_id)
    with (
        (stack.directory / "controller.log").open("w") as output,
        controller(stack, "--interval", "2", output=output),
        UsageSampler(stack.ray) as usage,
    ):
        span = ("--from-date", str(DAYS[0]), "--to-date", str(DAYS[-1]), "--max-active-runs", "14")
        stack.airflow.cli("backfill", "create", "--dag-id", "acme_daily_delays", *span)
        # Nobody else wants anything yet.
        until(lambda: stack.api.pools()["ray.acme"]["slots"] == CAPACITY, "a pool of the whole group", 120)
        live.append(("globex_delay_model", start(stack, "globex_delay_model")))
        for number, day in enumerate(LIVE_DAYS):
            # Each comes while the backfill is under way, and further on.
            until(lambda wanted=2 * number: len(_ended(stack)) >= wanted, "some of the backfill", 360)
            live.append(("acme_daily_delays", start(stack, "acme_daily_delays", day)))
        for dag_id, run_id in live:
            assert finish(stack, dag_id, run_id, 360) == "success"
        until(lambda: len(_ended(stack)) == 14, "the end of the backfill", 360)
    # Without a controller the sizes of its last moment would stay for the tests that follow.
    stack.airflow.cli("raytenant", "pools", "sync")
    return usage


def _ended(stack: Stack) -> list[str]:
    runs = stack.api.dag_runs("acme_daily_delays")
    return [r["state"] for r in runs if r["run_type"] == "backfill" and r["state"] in ("success", "failed")]


@pytest.mark.timeout(600)
def test_a_backfill_beside_live_runs_succeeds_within_the_cluster(
    stack: Stack, backfilled: UsageSampler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ended(stack) == ["success"] * 14
    peak = backfilled.peak
    assert peak is not None
    with capsys.disabled():
        print(
            f"\nwith our pools: at most {peak.slots} of {CAPACITY} slots, {backfilled.peak_footprint} "
            f"at once, {len(backfilled.samples)} samples, {backfilled.misses} missed"
        )
    assert 3 < peak.slots <= CAPACITY
    assert backfilled.peak_footprint.fits_in(CLUSTER)
    assert backfilled.misses < len(backfilled.samples) / 10


def test_a_tenant_alone_borrows(stack: Stack, backfilled: UsageSampler) -> None:
    # Three slots a job. That its pool came to have all slots was waited for; how many jobs live at once also
    # hangs on how soon they end on this machine. More than its guarantee and half of the group do.
    most = max(sample.jobs_by_tenant.get("acme", 0) for sample in backfilled.samples)
    assert CAPACITY / 2 < 3 * most <= CAPACITY


def test_no_live_task_waits_behind_a_backfills_task_that_became_ready_later(
    stack: Stack, backfilled: UsageSampler, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run["dag_run_id"] for run in stack.api.dag_runs("acme_daily_delays")]
    tasks = [task for run_id in runs for task in stack.api.task_instances("acme_daily_delays", run_id)]
    assert {task["pool"] for task in tasks} == {"ray.acme"}
    live = [task for task in tasks if not task["dag_run_id"].startswith("backfill__")]
    later = [task for task in tasks if task not in live]
    assert (len(live), len(later)) == (len(LIVE_DAYS), 14)
    for task in live:
        before = [b for b in later if b["queued_when"] < task["queued_when"]]
        assert all(b["scheduled_when"] <= task["scheduled_when"] for b in before), task["dag_run_id"]
    # Not by chance: they went before tasks that had been ready for longer.
    overtaken = [
        b
        for task in live
        for b in later
        if b["scheduled_when"] < task["scheduled_when"] and task["queued_when"] < b["queued_when"]
    ]
    with capsys.disabled():
        print(f"\nlive runs went before a backfill's task that was ready earlier {len(overtaken)} times")
    assert overtaken


def test_no_job_met_a_start_time_out_and_jobs_use_more_than_their_driver(
    stack: Stack, backfilled: UsageSampler
) -> None:
    found = [
        job
        for job in stack.ray.api("GET", "/api/jobs/")
        if (job["metadata"] or {}).get("raytenant.dag_id") == "acme_daily_delays"
    ]
    assert len(found) == 14 + len(LIVE_DAYS)
    assert {job["status"] for job in found} == {"SUCCEEDED"}
    assert {json.loads(job["metadata"]["raytenant.footprint"])["cpus"] for job in found} == {3.0}


def test_the_daily_statistics_are_what_pandas_finds_in_the_csv(
    stack: Stack, backfilled: UsageSampler
) -> None:
    assert stack.s3 is not None
    client = stack.s3.client()
    for day in DAYS:
        key = f"tenants/acme/delays/{day}.json"
        report = json.loads(client.get_object(Bucket=stack.s3.bucket, Key=key)["Body"].read())
        found, expected = _flat(report["carriers"]), _flat(flights.daily_statistics(day))
        assert len(expected) > 50
        assert found == pytest.approx(expected), day


@pytest.mark.timeout(400)
def test_the_same_load_without_our_pools_asks_for_more_than_there_is(
    stack: Stack, backfilled: UsageSampler, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.api.wait_dag("free_daily")
    stack.api.unpause("free_daily")
    with UsageSampler(stack.ray) as usage:
        span = ("--from-date", str(DAYS[0]), "--to-date", str(DAYS[-1]), "--max-active-runs", "14")
        stack.airflow.cli("backfill", "create", "--dag-id", "free_daily", *span)
        until(lambda: _most(usage) > CAPACITY, "a load above the capacity", 120)
    with capsys.disabled():
        print(f"\nwithout our pools: {_most(usage)} of {CAPACITY} slots asked for at once")
    stack.api.pause("free_daily")
    for run in stack.api.dag_runs("free_daily"):
        if run["state"] not in ("success", "failed"):
            stack.api.mark_run("free_daily", run["dag_run_id"], "failed")
    until(lambda: not _live(stack, "free_daily"), "the end of the jobs of failed runs", 120)


def _flat(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Nested numbers by their path, as pytest's approx wants them."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{path}/{key}") if isinstance(value, dict) else {f"{path}/{key}": value}
    return flat


def _most(usage: UsageSampler) -> int:
    return usage.peak.slots if usage.peak else 0


def _live(stack: Stack, dag_id: str) -> list[str]:
    return [
        job["submission_id"]
        for job in stack.ray.api("GET", "/api/jobs/")
        if job["status"] in ("PENDING", "RUNNING")
        and (job["metadata"] or {}).get("raytenant.dag_id") == dag_id
    ]
