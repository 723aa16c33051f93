"""The commands against the running, token-protected cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stack.deployment import cluster_ray
from stack.stack import Stack
from tests.e2e.conftest import CAPACITY
from tests.e2e.runs import finish, start, until


def test_plan_shows_every_pool_and_a_second_sync_changes_nothing(stack: Stack, pools: dict[str, int]) -> None:
    def settled() -> bool:
        return "Nothing to change." in stack.airflow.cli("raytenant", "pools", "sync").stdout

    # What other tests left running ends, and sizes follow.
    until(settled, "a sync that changes nothing")
    now = {name: pool for name, pool in stack.api.pools().items() if name in pools}
    answer = stack.airflow.cli("raytenant", "pools", "plan", "--output", "json", check=False)
    rows = json.loads(answer.stdout)
    assert {row["pool"]: row["wanted"] for row in rows} == {name: pool["slots"] for name, pool in now.items()}
    assert sum(pool["slots"] for pool in now.values()) == CAPACITY
    assert all(pool["include_deferred"] for pool in now.values())


def test_plan_names_a_request_that_is_larger_than_its_pool_and_exits_1(stack: Stack) -> None:
    # `too_big` asks for 64 GiB: allowed, since acme has no limit, but no pool will ever hold it.
    stack.api.wait_dag("too_big")
    answer = stack.airflow.cli("raytenant", "pools", "plan", check=False)
    assert answer.returncode == 1
    assert "too_big.giant asks for 128 slots" in answer.stderr


def test_a_wrong_token_and_a_silent_cluster_change_nothing_and_say_so(stack: Stack, tmp_path: Path) -> None:
    before = stack.api.pools()
    cases = {
        "wrong_token": (stack.ray.dashboard_url, "nonsense", "refuses the connection's token (403)"),
        "no_token": (stack.ray.dashboard_url, None, "wants a token (401)"),
        "silent": ("http://127.0.0.1:9", "x", "cannot be reached"),
    }

    def synced(conn_id: str) -> subprocess.CompletedProcess[str]:
        host, token, _ = cases[conn_id]
        stack.api.create_connection(conn_id, "ray", host=host, password=token)
        file = tmp_path / f"{conn_id}.yaml"
        text = (stack.directory / "raytenant.yaml").read_text().replace("ray_shared", conn_id)
        file.write_text(text.replace("guarantee: 3", "guarantee: 1"))
        return stack.airflow.cli("raytenant", "pools", "sync", "--file", str(file), check=False)

    with ThreadPoolExecutor() as side_by_side:
        answers = dict(zip(cases, side_by_side.map(synced, cases), strict=True))
    for conn_id, (_, _, words) in cases.items():
        assert answers[conn_id].returncode == 1
        assert words in answers[conn_id].stderr
        assert "Traceback" not in answers[conn_id].stderr
    assert stack.api.pools() == before


def test_pools_of_others_are_never_touched(stack: Stack) -> None:
    # A pool that already has a name of ours, but that somebody else made.
    stack.api.call(
        "POST", "/pools", {"name": "ray.hers", "slots": 5, "description": "hers", "include_deferred": False}
    )
    try:
        file = stack.directory / "with_hers.yaml"
        file.write_text((stack.directory / "raytenant.yaml").read_text() + "  hers: {guarantee: 0}\n")
        answer = stack.airflow.cli(
            "raytenant", "pools", "sync", "--file", str(file), "--dry-run", check=False
        )
        assert answer.returncode == 1
        assert "pool ray.hers: exists, but is not of our making" in answer.stderr
        stack.airflow.cli("raytenant", "pools", "sync")
        hers = stack.api.pools()["ray.hers"]
        assert (hers["slots"], hers["description"], hers["include_deferred"]) == (5, "hers", False)
    finally:
        stack.api.call("DELETE", "/pools/ray.hers")


def test_tenants_list_speaks_of_slots_cpu_and_memory(stack: Stack) -> None:
    answer = stack.airflow.cli("raytenant", "tenants", "list", "--output", "json")
    acme = next(row for row in json.loads(answer.stdout) if row["tenant"] == "acme")
    assert (acme["guarantee"], acme["that is"]) == (3, "3 CPU + 1.5GiB")


def test_the_connection_test_speaks_of_version_authentication_nodes_cpu_and_memory(stack: Stack) -> None:
    hook = "airflow_provider_raytenant.hooks.ray"
    code = f"from {hook} import RayHook; print(RayHook('ray_shared').test_connection())"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=stack.airflow.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "(True, 'Ray 2." in answer.stdout
    assert "authentication on, 1 node, 12 CPU, 6GiB memory" in answer.stdout


def test_no_dag_has_an_import_error(stack: Stack) -> None:
    assert stack.api.import_errors() == []


@pytest.mark.timeout(300)
def test_local_up_writes_a_connection_and_a_tenant_file_that_work(stack: Stack, tmp_path: Path) -> None:
    def local(verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        place = ("--directory", str(tmp_path / "local"))
        return stack.airflow.cli("raytenant", "local", verb, *place, *options, check=False)

    sizes = ("--cpus", "2", "--memory", "1GiB", "--ray", str(cluster_ray()), "--token", "of-the-laptop")
    try:
        up = local("up", *sizes)
        assert up.returncode == 0, up.stderr
        assert "Connection:  ray_local" in up.stdout
        file = str(tmp_path / "local" / "raytenant.yaml")
        answer = stack.airflow.cli(
            "raytenant", "pools", "sync", "--file", file, "--dry-run", "--output", "json", check=False
        )
        wanted = {row["pool"]: row["wanted"] for row in json.loads(answer.stdout)}
        assert (wanted["ray.acme"], wanted["ray.globex"]) == (1, 1)
        assert "answers, 1 node" in local("status").stdout
    finally:
        down = local("down")
    assert "Stopped." in down.stdout


def test_explain_tells_of_a_task_that_ended_one_that_can_never_run_and_one_that_is_not_there(
    stack: Stack,
) -> None:
    def explain(*asked: str) -> subprocess.CompletedProcess[str]:
        return stack.airflow.cli("raytenant", "explain", *asked, check=False)

    failed, giant = start(stack, "fails"), start(stack, "too_big")
    try:
        assert finish(stack, "fails", failed) == "failed"
        ended = explain("fails", failed, "exit3")
        assert ended.stdout.startswith("Ended ")
        assert "it failed in try 2, with JobFailedError." in ended.stdout.splitlines()[0]
        stack.api.wait_task("too_big", giant, "giant", ["scheduled"])
        never = explain("too_big", giant, "giant", "--output", "json")
        known = json.loads(never.stdout)
        assert (known["verdict"], known["task"]["slots"], known["place"]) == ("never", 128, 1)
    finally:
        stack.api.mark_run("too_big", giant, "failed")
    unknown = explain("fails", failed, "exit4")
    assert (ended.returncode, never.returncode, unknown.returncode) == (0, 0, 1)
    assert unknown.stderr.splitlines()[-1] == ("TASK_ID: found 'exit4'; allowed: the tasks of the run: exit3")
