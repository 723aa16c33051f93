"""Why a task that was started is not done: an answer of its own for every case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_raytenant.domain.explanation import Verdict
from airflow_provider_raytenant.domain.waiting_facts import (
    Line,
)
from tests.domain.explain_world import (
    DEAD,
    PROCESSES,
    ago,
    evidence,
    explained,
    job,
    pool,
    task,
)

ELSEWHERE = pool(2, 1, name="default_pool", description="Default pool")


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
