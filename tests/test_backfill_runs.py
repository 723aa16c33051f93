"""Airflow's own code with and without the cluster policy: where task instances queue, and what they weigh.

The backfill's day is before the live run's, so that Airflow by itself would start the backfill first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_raytenant.checks.policy import LINE
from airflow_provider_raytenant.priority import BEHIND

ROOT = Path(__file__).parent.parent
LIVE, BACKFILL = "scheduled__2026-01-11", "backfill__2026-01-01"
TENANTS = """\
deployment: test
clusters: {shared: {ray_conn_id: ray, groups: {cpu: {slot: {cpus: 1, memory: 1GiB}}}}}
tenants: {acme: {cluster: shared, backfill: {limit: 6}}}
"""
Way = tuple[bool, dict[str, Any]]


def stages(home: Path, local_settings: str | None) -> dict[str, Any]:
    (home / "config").mkdir()
    (home / "tenants.yaml").write_text(TENANTS)
    if local_settings is not None:
        (home / "config" / "airflow_local_settings.py").write_text(local_settings)
    known = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env = {
        **known,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__RAYTENANT__CONFIG_FILE": str(home / "tenants.yaml"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.fakes.backfill_runs"]
    done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["no policy", "policy"])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Way:
    """Whether there is a policy, and the stages."""
    return request.param, stages(tmp_path_factory.mktemp("airflow"), f"{LINE}\n" if request.param else None)


def seen(stage: dict[str, Any], run: str) -> dict[str, tuple[str, int, int]]:
    return {name.removeprefix(run + " "): tuple(now) for name, now in stage.items() if name.startswith(run)}


def wanted(policy: bool, backfill: bool, dynamic: tuple[int, ...]) -> dict[str, tuple[str, int, int]]:
    less = BEHIND if backfill else 0
    pool = "ray.acme.backfill" if backfill and policy else "ray.acme"
    own = (1, 2, 4) if policy else (4, 4, 4)
    return {
        "names -1": ("default_pool", 1, 2),
        "plain -1": (pool, 1, 4 - less),
        # More than the backfill's limit of 6: it stays, behind live tasks.
        "big -1": ("ray.acme", 7, 1 - less),
        **{f"literal {index}": (pool, slots, 1 - less) for index, slots in enumerate(own)},
        **{f"dynamic {index}": (pool, 1, 1 - less) for index in dynamic},
    }


def test_runs_that_are_made(way: Way) -> None:
    policy, found = way
    assert seen(found["made"], LIVE) == wanted(policy, False, (-1,))
    assert seen(found["made"], BACKFILL) == wanted(policy, True, (-1,))


def test_live_tasks_are_queued_before_those_of_a_backfill(way: Way) -> None:
    policy, found = way
    order = [name.split()[0] for name in found["order"]["ray.acme"]]
    assert order[0] == LIVE
    assert order == sorted(order, reverse=True)
    assert bool(found["order"]["ray.acme.backfill"]) is policy


def test_tasks_mapped_over_what_came_before(way: Way) -> None:
    policy, found = way
    assert seen(found["expanded"], LIVE) == wanted(policy, False, (0, 1))
    assert seen(found["expanded"], BACKFILL) == wanted(policy, True, (0, 1))


def test_cleared_tasks_stay_where_they_are(way: Way) -> None:
    policy, found = way
    assert seen(found["cleared"], BACKFILL) == wanted(policy, True, (0, 1))


def test_a_reprocessed_run_is_a_backfill_from_its_start_on(way: Way) -> None:
    policy, found = way
    # Airflow clears the tasks before it makes the run a backfill's: that is why there is a listener.
    assert seen(found["reprocess made"], LIVE) == wanted(policy, False, (0, 1))
    assert seen(found["reprocess started"], LIVE) == wanted(policy, True, (0, 1))
    assert seen(found["reprocess cleared"], LIVE) == wanted(policy, True, (0, 1))


def test_a_mapped_task_that_a_reprocessed_run_adds_is_known_to_the_policy_only(way: Way) -> None:
    policy, found = way
    grown = seen(found["reprocess grown"], LIVE)
    added = grown.pop("dynamic 2")
    assert grown == wanted(policy, True, (0, 1))
    assert added == (("ray.acme.backfill", 1, 1 - BEHIND) if policy else ("ray.acme", 1, 1))
