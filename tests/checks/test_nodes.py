from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.checks.finding import Finding, Level
from airflow_provider_raytenant.checks.nodes import judge_head, judge_nodes
from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import Cluster

GIB = 1024**3
IDLE_HEAD = Node("head", Resources(memory=4 * GIB), is_head=True)
WORKER = Node("worker", Resources(cpus=4, memory=8 * GIB))
GPU = {"slot": {"gpus": 1, "cpus": 2, "memory": "4GiB"}}


def cluster(cpus: float = 1, memory: str = "2GiB", **more: Any) -> Cluster:
    groups = {"cpu": {"slot": {"cpus": cpus, "memory": memory}}, **more.pop("groups", {})}
    return Cluster.model_validate({"ray_conn_id": "ray", "groups": groups, **more})


def judged(cluster: Cluster, *nodes: Node) -> dict[str, Finding]:
    return {finding.check: finding for finding in judge_nodes(cluster, nodes)}


def test_a_head_without_work_is_right() -> None:
    assert judge_head([IDLE_HEAD, WORKER]).level is Level.OK
    assert judge_head([WORKER]).level is Level.OK


def test_a_head_that_works_is_a_warning_with_its_cpus() -> None:
    working = Node("head", Resources(cpus=2, memory=GIB), is_head=True)
    found = judge_head([working, WORKER])
    assert found.level is Level.WARNING
    assert "(2 CPU):" in found.found
    assert "--num-cpus=0" in found.advice
    assert "only node" in judge_head([working]).found


def test_nodes_are_counted_and_slots_with_them() -> None:
    found = judged(cluster(), IDLE_HEAD, WORKER)
    assert (found["nodes"].level, found["nodes"].found) == (
        Level.OK,
        "2 nodes alive, together 4 CPU + 12GiB",
    )
    assert found["group cpu"].found == "slots of 1 CPU + 2GiB: 4, on 2 nodes"


def test_no_node_is_a_failure_unless_the_cluster_scales_by_itself() -> None:
    assert {f.level for f in judged(cluster()).values()} == {Level.FAILURE}
    scaling = cluster(autoscale={"max": {"cpus": 64, "memory": "64GiB"}})
    assert {f.level for f in judged(scaling).values()} == {Level.OK}


@pytest.mark.parametrize(
    ("wanted", "level"),
    [
        (cluster(4, "8GiB"), Level.OK),
        (cluster(5, "1GiB"), Level.FAILURE),
        (cluster(1, "9GiB"), Level.FAILURE),
        (cluster(4, "1GiB", usable="90%"), Level.FAILURE),
    ],
)
def test_a_slot_larger_than_the_largest_node_is_a_failure(wanted: Cluster, level: Level) -> None:
    found = judged(wanted, WORKER)["group cpu"]
    assert found.level is level
    assert level is Level.OK or "larger than its largest node" in found.found


def test_a_slot_larger_than_the_largest_node_that_may_come_is_a_failure() -> None:
    scale = {"max": {"cpus": 64, "memory": "64GiB"}, "largest_node": {"cpus": 8, "memory": "16GiB"}}
    assert judged(cluster(8, autoscale=scale), WORKER)["group cpu"].level is Level.OK
    found = judged(cluster(9, autoscale=scale), WORKER)["group cpu"]
    assert (found.level, "larger than the largest node may be" in found.found) == (Level.FAILURE, True)


def test_a_group_without_nodes_is_a_failure() -> None:
    found = judged(cluster(groups={"gpu": GPU}), WORKER)
    assert (found["group cpu"].level, found["group gpu"].level) == (Level.OK, Level.FAILURE)
    assert "no node belongs to it" in found["group gpu"].found
    with_gpu = Node("gpu", Resources(cpus=4, memory=8 * GIB, gpus=1))
    assert judged(cluster(groups={"gpu": GPU}), WORKER, with_gpu)["group gpu"].level is Level.OK
