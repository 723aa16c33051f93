from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_raytenant.local.errors import PathTooLong, RequestRefused, ServiceDied
from airflow_provider_raytenant.local.processes import scope_pids, wait_until
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.local.ray_node import LABEL, check_temp_dir
from tests.local.local_helpers import command_lines

GIB = 1024**3


def run_job(cluster: RayCluster, submission_id: str, entrypoint: str, node: str = "head") -> str:
    """Run a job on a node to its end and return its log; fails unless it succeeded."""
    request = {
        "entrypoint": entrypoint,
        "submission_id": submission_id,
        "entrypoint_num_cpus": 0.1,
        "entrypoint_label_selector": {LABEL: node},
    }
    cluster.api("POST", "/api/jobs/", request)
    path = f"/api/jobs/{submission_id}"

    def over() -> bool:
        return cluster.api("GET", path)["status"] in ("SUCCEEDED", "FAILED", "STOPPED")

    wait_until(over, timeout=60, what=submission_id)
    assert cluster.api("GET", path)["status"] == "SUCCEEDED"
    return str(cluster.api("GET", f"{path}/logs")["logs"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ray_binary: Path) -> Iterator[RayCluster]:
    directory = tmp_path_factory.mktemp("ray")
    with RayCluster.start(directory, 2, GIB, ray_binary, env={"GREETING": "hi"}) as cluster:
        temp_dir = str(cluster.head.temp_dir)
        assert command_lines(temp_dir)
        yield cluster
    assert command_lines(temp_dir) == []
    assert not Path(temp_dir).parent.exists()
    assert (directory / "logs" / "head" / "dashboard.log").is_file()


@pytest.mark.stack
def test_the_dashboard_answers_and_shows_what_was_asked_for(cluster: RayCluster) -> None:
    assert cluster.api("GET", "/api/version")["ray_version"]
    node = cluster.alive_nodes()["head"]

    assert node["resources_total"]["CPU"] == 2
    assert node["resources_total"]["memory"] == GIB


@pytest.mark.stack
def test_a_job_runs_with_the_cluster_python_and_environment(cluster: RayCluster) -> None:
    log = run_job(
        cluster, "greet", "echo $GREETING from $(command -v python); env | grep -c ^AIRFLOW || true"
    )

    # Not line by line in order: Ray writes lines of its own in between.
    assert {f"hi from {cluster.ray_binary.parent / 'python'}", "0"} <= set(log.splitlines())


@pytest.mark.stack
def test_a_node_comes_and_goes_also_from_state_on_disk(cluster: RayCluster) -> None:
    again = RayCluster.from_json(json.loads(json.dumps(cluster.to_json())))
    assert again.running

    node = again.add_node(1, GIB, gpus=2, labels={"zone": "b"})
    try:
        seen = again.alive_nodes()[node.name]
        assert seen["resources_total"]["GPU"] == 2
        assert seen["labels"]["zone"] == "b"
        assert "over here" in run_job(again, "elsewhere", "echo over here", node.name)
    finally:
        again.remove_node(node)

    assert list(cluster.alive_nodes()) == ["head"]
    assert scope_pids(node.service.mark) == []
    assert cluster.running


@pytest.mark.stack
def test_a_head_that_is_killed_and_started_anew_finds_what_it_kept_on_disk(
    tmp_path: Path, ray_binary: Path
) -> None:
    kept = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(tmp_path / "gcs")}
    with RayCluster.start(tmp_path / "ray", 1, GIB, ray_binary, env=kept) as cluster:
        run_job(cluster, "before", "true")
        first = cluster.head.service.mark
        cluster.restart_head()
        assert scope_pids(first) == []
        assert cluster.api("GET", "/api/jobs/before")["status"] == "SUCCEEDED"
        run_job(cluster, "after", "true")


@pytest.mark.stack
def test_an_error_status_is_told(cluster: RayCluster) -> None:
    with pytest.raises(RequestRefused, match="404") as caught:
        cluster.api("GET", "/api/jobs/nobody-knows")

    assert caught.value.status == 404


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    program = tmp_path / "ray"
    program.write_text('#!/bin/sh\necho "no Ray in $2 mode"\nexit 1\n')
    program.chmod(0o755)
    temp_dir = tmp_path / "t"

    with pytest.raises((ServiceDied, PathTooLong)):
        RayCluster.start(tmp_path / "ray-files", 1, GIB, program, temp_dir=temp_dir)

    assert not temp_dir.exists()


def test_a_temp_dir_that_is_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PathTooLong, match=r"allow [0-9]+ at most"):
        check_temp_dir(tmp_path / ("x" * 100))
