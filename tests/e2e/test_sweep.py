"""Orphans, old records and the commands about jobs, on real Ray and real Airflow."""

from __future__ import annotations

import json
import signal
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_raytenant.domain.job_spec import TryIdentity
from stack.deployment import DEPLOYMENT
from stack.stack import Stack
from tests.e2e.runs import controller, jobs, start, until

LIVE = ("PENDING", "RUNNING")


@dataclass
class ByHand:
    """Ray jobs that no task has submitted, stopped at the end."""

    stack: Stack

    def identity(self, **more: Any) -> TryIdentity:
        made_up = TryIdentity(DEPLOYMENT, "acme", "by_hand", "run", "task", -1, 1, str(uuid.uuid4()))
        return replace(made_up, **more)

    def submit(self, name: str, metadata: dict[str, str], entrypoint: str = "sleep 300") -> str:
        body = {
            "submission_id": name,
            "entrypoint": entrypoint,
            "metadata": metadata,
            "entrypoint_num_cpus": 0.1,
        }
        self.stack.ray.api("POST", "/api/jobs/", body)
        return name

    def status(self, name: str) -> str:
        return str(self.stack.ray.api("GET", f"/api/jobs/{name}")["status"])

    def known(self) -> set[str]:
        return {job["submission_id"] for job in self.stack.ray.api("GET", "/api/jobs/")}


@pytest.fixture
def by_hand(stack: Stack) -> ByHand:
    return ByHand(stack)


def test_live_jobs_are_shown_with_their_tasks_and_orphans_are_stopped(stack: Stack, by_hand: ByHand) -> None:
    orphan = by_hand.identity()
    theirs = by_hand.identity(deployment="staging")
    with controller(stack, "--interval", "2") as process, ThreadPoolExecutor() as side_by_side:
        run_id = start(stack, "swept")
        plain = by_hand.submit(f"plain-{uuid.uuid4().hex}", {})
        copied = by_hand.submit(f"copied-{uuid.uuid4().hex}", orphan.metadata())
        foreign = by_hand.submit(theirs.submission_id, theirs.metadata())
        try:
            # -- A live job and its task. Nobody wants to stop it.
            until(lambda: _statuses(stack, run_id) == ["RUNNING"], "the task's job", 180)
            stack.api.wait_task("swept", run_id, "sleeper", ["deferred"])
            name = jobs(stack, run_id, "swept")[0]["submission_id"]
            listed = side_by_side.submit(stack.airflow.cli, "raytenant", "jobs", "list", "-o", "json")
            shown = side_by_side.submit(stack.airflow.cli, "raytenant", "jobs", "show", name)
            refused = side_by_side.submit(
                stack.airflow.cli, "raytenant", "jobs", "stop", foreign, plain, check=False
            )

            # -- An orphan, while the controller is at work.
            by_hand.submit(orphan.submission_id, orphan.metadata())
            took = until(
                lambda: by_hand.status(orphan.submission_id) not in LIVE, "the stop of the orphan", 30
            )
            print(f"the orphan had ended {took:.1f} s after its submit")

            row = next(r for r in json.loads(listed.result().stdout) if r["submission_id"] == name)
            assert (row["tenant"], row["task"], row["run_id"]) == ("acme", "swept.sleeper", run_id)
            assert (row["ray"], row["airflow"], row["orphan"]) == ("RUNNING", "deferred", False)
            assert "airflow        deferred; its task waits for it\n" in shown.result().stdout
            assert "footprint      1 CPU + 256MiB\n" in shown.result().stdout
            assert refused.result().returncode == 1
            assert (
                f"job {foreign} of cluster shared is not of deployment {DEPLOYMENT}"
                in refused.result().stderr
            )

            # -- A clear of a paused DAG: Airflow tells the trigger nothing.
            assert _statuses(stack, run_id) == ["RUNNING"]
            stack.api.pause("swept")
            stack.api.clear("swept", run_id)
            took = until(lambda: _statuses(stack, run_id) == ["STOPPED"], "the stop of the cleared job", 60)
            print(f"the job of a paused DAG's cleared task had ended after {took:.1f} s")
            assert [by_hand.status(job) for job in (plain, copied, foreign)] == ["RUNNING"] * 3
        finally:
            for job in (plain, copied, foreign):
                stack.ray.api("POST", f"/api/jobs/{job}/stop")
        process.send_signal(signal.SIGTERM)
        lines, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "")
    print(lines)
    assert f"stopping job {orphan.submission_id}: its task by_hand.task is gone" in lines
    assert f"stopping job {name}: its task swept.sleeper is cleared" in lines
    assert lines.count("stopping job") == 2


def test_old_records_of_ours_are_deleted_and_no_others(stack: Stack, by_hand: ByHand, tmp_path: Path) -> None:
    # A deployment of its own: the other tests still read the records of theirs.
    file = tmp_path / "raytenant.yaml"
    text = (stack.directory / "raytenant.yaml").read_text()
    file.write_text(text.replace(f"deployment: {DEPLOYMENT}", "deployment: swept"))
    ours = by_hand.identity(deployment="swept")
    theirs = by_hand.identity(deployment="staging")
    names = [by_hand.submit(own.submission_id, own.metadata(), "true") for own in (ours, theirs)]
    until(lambda: not {by_hand.status(name) for name in names} & set(LIVE), "the end of the jobs")
    sweep = ("raytenant", "jobs", "sweep", "--file", str(file), "-o", "json")
    kept = stack.airflow.cli(*sweep, "--older-than", "7d")
    assert json.loads(kept.stdout) == []
    before = by_hand.known()
    answer = stack.airflow.cli(*sweep, "--older-than", "0s")
    assert [(row["submission_id"], row["action"]) for row in json.loads(answer.stdout)] == [
        (ours.submission_id, "deleted")
    ]
    assert before - by_hand.known() == {ours.submission_id}


def _statuses(stack: Stack, run_id: str) -> list[str]:
    return [job["status"] for job in jobs(stack, run_id, "swept")]
