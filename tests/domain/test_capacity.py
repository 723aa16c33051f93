from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.domain.capacity import (
    GroupSize,
    Node,
    group_of_node,
    group_sizes,
    misfit,
)
from airflow_provider_raytenant.domain.labels import matches
from airflow_provider_raytenant.domain.resources import Resources
from tests.domain.helpers import GIB, make_cluster, make_node

SLOT = {"cpus": 1, "memory": "4GiB"}
GPU_SLOT = {"gpus": 1, "cpus": 8, "memory": "64GiB"}
NODE = make_node(16, 64)
GPU_NODE = make_node(32, 256, 4)


def _slots(nodes: list[Node], **cluster: Any) -> dict[str, tuple[int, int]]:
    return {
        name: (size.slots, size.live) for name, size in group_sizes(make_cluster(**cluster), nodes).items()
    }


@pytest.mark.parametrize(
    ("nodes", "cluster", "sizes"),
    [
        ([], {}, {"cpu": (0, 0), "gpu": (0, 0)}),
        ([NODE], {}, {"cpu": (16, 16), "gpu": (0, 0)}),
        ([NODE, NODE, GPU_NODE], {}, {"cpu": (32, 32), "gpu": (4, 4)}),
        # The scarcest resource of each node decides; a slot never spans two nodes.
        ([make_node(16, 63)], {}, {"cpu": (15, 15), "gpu": (0, 0)}),
        ([make_node(0.5, 2), make_node(0.5, 2)], {}, {"cpu": (0, 0), "gpu": (0, 0)}),
        ([make_node(32, 130, 4)], {}, {"cpu": (0, 0), "gpu": (2, 2)}),
        # A head that takes no work has no CPU.
        ([make_node(0, 64), NODE], {}, {"cpu": (16, 16), "gpu": (0, 0)}),
        # usable, per node
        ([NODE, NODE], {"usable": "90%"}, {"cpu": (28, 28), "gpu": (0, 0)}),
        ([GPU_NODE], {"usable": 0.9}, {"cpu": (0, 0), "gpu": (3, 3)}),
        # reserve: CPU and memory from the first group, GPUs from groups that have them
        ([NODE, GPU_NODE], {"reserve": {"cpus": 2.5}}, {"cpu": (13, 13), "gpu": (4, 4)}),
        ([NODE, GPU_NODE], {"reserve": {"cpus": 1, "memory": "32GiB"}}, {"cpu": (8, 8), "gpu": (4, 4)}),
        ([NODE, GPU_NODE], {"reserve": {"gpus": 1}}, {"cpu": (16, 16), "gpu": (3, 3)}),
        ([NODE, GPU_NODE], {"reserve": {"cpus": 99, "gpus": 99}}, {"cpu": (0, 0), "gpu": (0, 0)}),
        (
            [GPU_NODE],
            {"groups": {"gpu": {"slot": GPU_SLOT}}, "reserve": {"cpus": 16, "gpus": 1}},
            {"gpu": (2, 2)},
        ),
        # autoscaling: the maximum counts, and never makes a group smaller
        ([], {"autoscale": {"max": {"cpus": 256, "memory": "1TiB"}}}, {"cpu": (256, 0), "gpu": (0, 0)}),
        ([NODE], {"autoscale": {"max": {"cpus": 8, "memory": "32GiB"}}}, {"cpu": (16, 16), "gpu": (0, 0)}),
        ([NODE], {"autoscale": {"max": {"cpus": 64, "memory": "128GiB"}}}, {"cpu": (32, 16), "gpu": (0, 0)}),
        ([GPU_NODE], {"autoscale": {"max": {"gpus": 9}}}, {"cpu": (0, 0), "gpu": (9, 4)}),
        (
            [],
            {"autoscale": {"max": {"cpus": 64, "memory": "256GiB"}}, "usable": 0.9, "reserve": {"cpus": 7}},
            {"cpu": (50, 0), "gpu": (0, 0)},
        ),
    ],
)
def test_a_groups_size_is_the_sum_of_its_nodes_slots(
    nodes: list[Node], cluster: dict[str, Any], sizes: dict[str, tuple[int, int]]
) -> None:
    assert _slots(nodes, **cluster) == sizes


@pytest.mark.parametrize(
    ("usable", "most", "largest", "slots"),
    [
        # Four nodes of 3 CPUs: one slot of 2 CPUs each, and no seventh from what is left over.
        (1, {"cpus": 12, "memory": "48GiB"}, {"cpus": 3, "memory": "12GiB"}, 4),
        # ... without the largest node the maximum is one heap.
        (1, {"cpus": 12, "memory": "48GiB"}, None, 6),
        # The rest of a node counts: 4 x 3 CPUs and one of 2.
        (1, {"cpus": 14, "memory": "56GiB"}, {"cpus": 3, "memory": "12GiB"}, 5),
        # usable is taken off each node: 16 x 0.9 = 14.4, so 7 slots of 2 CPUs.
        (0.9, {"cpus": 256, "memory": "1TiB"}, {"cpus": 16, "memory": "64GiB"}, 112),
    ],
)
def test_an_autoscalers_maximum_is_cut_into_its_largest_nodes(
    usable: float, most: dict[str, Any], largest: dict[str, Any] | None, slots: int
) -> None:
    groups = {"cpu": {"slot": {"cpus": 2, "memory": "4GiB"}}}
    scale = {"max": most, "largest_node": largest}
    assert _slots([], groups=groups, usable=usable, autoscale=scale) == {"cpu": (slots, 0)}


def test_a_further_group_without_gpus_has_no_part_in_the_autoscalers_maximum() -> None:
    groups = {"cpu": {"slot": SLOT}, "big": {"slot": SLOT, "labels": {"kind": "big"}}}
    scale = {"max": {"cpus": 64, "memory": "256GiB", "gpus": 8}}
    nodes = [make_node(4, 16, labels={"kind": "big"})]
    assert _slots(nodes, groups=groups, autoscale=scale) == {"cpu": (64, 0), "big": (4, 4)}


def test_a_first_group_with_gpus_grows_by_gpus_too() -> None:
    scale = {
        "max": {"cpus": 80, "memory": "640GiB", "gpus": 10},
        "largest_node": {"cpus": 32, "memory": "256GiB", "gpus": 4},
    }
    assert _slots([], groups={"gpu": {"slot": GPU_SLOT}}, autoscale=scale) == {"gpu": (10, 0)}


def test_fractions_of_a_gpu_are_counted_exactly() -> None:
    groups = {"cpu": {"slot": SLOT}, "gpu": {"slot": {"gpus": 0.1, "cpus": 1, "memory": "4GiB"}}}
    # 3 // 0.1 is 29 in floats.
    assert _slots([], groups=groups, autoscale={"max": {"gpus": 3}})["gpu"] == (30, 0)
    assert _slots([make_node(64, 256, 3)], groups=groups)["gpu"] == (30, 30)


def test_a_size_says_how_it_came_about() -> None:
    cluster = make_cluster(reserve={"cpus": 2}, autoscale={"max": {"cpus": 40, "memory": "160GiB"}})
    assert group_sizes(cluster, [NODE, NODE]) == {
        "cpu": GroupSize(38, 30, "32 on 2 nodes, up to 40 by autoscaling, less 2 in reserve"),
        "gpu": GroupSize(0, 0, "0 on 0 nodes"),
    }
    assert group_sizes(make_cluster(), [NODE])["cpu"].why == "16 on 1 node"


@pytest.mark.parametrize(
    ("node", "group"),
    [
        (make_node(8), "cpu"),
        (make_node(8, gpus=1), "gpu"),
        (make_node(8, labels={"kind": "big"}), "big"),
        (make_node(8, gpus=1, labels={"kind": "big"}), "big"),
        (make_node(8, gpus=1, labels={"kind": "a100", "zone": "1"}), "a100"),
        (make_node(8, gpus=1, labels={"kind": "a100"}), "gpu"),
        (make_node(8, labels={"kind": "other"}), "cpu"),
    ],
)
def test_a_node_belongs_to_a_group_by_labels_first_and_then_by_gpus(node: Node, group: str) -> None:
    cluster = make_cluster(
        groups={
            "cpu": {"slot": SLOT},
            "gpu": {"slot": GPU_SLOT},
            "big": {"slot": SLOT, "labels": {"kind": "big"}},
            "a100": {"slot": GPU_SLOT, "labels": {"kind": "a100", "zone": "1"}},
        }
    )
    assert group_of_node(cluster, node) == group


@pytest.mark.parametrize(
    ("groups", "node", "group"),
    [
        ({"cpu": {"slot": SLOT}}, make_node(8, gpus=1), "cpu"),
        ({"gpu": {"slot": GPU_SLOT}}, make_node(8), None),
        ({"big": {"slot": SLOT, "labels": {"kind": "big"}}}, make_node(8), None),
    ],
)
def test_a_node_without_a_group_of_its_kind(groups: dict[str, Any], node: Node, group: str | None) -> None:
    assert group_of_node(make_cluster(groups=groups), node) == group


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ({}, True),
        ({"zone": "a"}, True),
        ({"zone": " a "}, True),
        ({"zone": "b"}, False),
        ({"zone": "!a"}, False),
        ({"zone": "!b"}, True),
        ({"zone": "in(a,b)"}, True),
        ({"zone": "in(b, a)"}, True),
        ({"zone": "in(b,c)"}, False),
        ({"zone": "in(ab)"}, False),
        ({"zone": "!in(b,c)"}, True),
        ({"zone": "!in(a,b)"}, False),
        ({"kind": "x"}, False),
        ({"kind": "in(x)"}, False),
        ({"kind": "!x"}, True),
        ({"kind": "!in(x)"}, True),
        ({"zone": "a", "disk": "ssd"}, True),
        ({"zone": "a", "disk": "hdd"}, False),
    ],
)
def test_a_label_selector_is_read_as_ray_reads_it(selector: dict[str, str], fits: bool) -> None:
    assert matches(selector, {"zone": "a", "disk": "ssd"}) is fits


SCALE = {"max": {"cpus": 256, "memory": "1TiB"}, "largest_node": {"cpus": 32, "memory": "64GiB"}}


@pytest.mark.parametrize(
    ("need", "selector", "cluster", "reason"),
    [
        (Resources(16, 64 * GIB), {}, {}, None),
        (Resources(17), {}, {}, "asks for 17 CPU; the largest alive node has 16 CPU + 64GiB + 1 GPU"),
        (
            Resources(1, 65 * GIB),
            {},
            {},
            "asks for 1 CPU + 65GiB; the largest alive node has 16 CPU + 64GiB + 1 GPU",
        ),
        # It fits a small node, though not the one with most CPUs.
        (Resources(1, 60 * GIB, 0, {"tpu": 1}), {}, {}, None),
        (
            Resources(1, gpus=2),
            {},
            {},
            "asks for 1 CPU + 2 GPU; the largest alive node has 16 CPU + 64GiB + 1 GPU",
        ),
        (
            Resources(1, custom={"tpu": 9}),
            {"zone": "b"},
            {},
            "asks for 1 CPU + 9 tpu; the largest alive node has 8 CPU + 64GiB + 4 tpu",
        ),
        (
            Resources(16),
            {"zone": "b"},
            {},
            "asks for 16 CPU; the largest alive node has 8 CPU + 64GiB",
        ),
        (
            Resources(1),
            {"zone": "c"},
            {},
            "asks for a node with {'zone': 'c'}; no alive node has these labels",
        ),
        # What the autoscaler may add counts, its labels and custom resources are not known.
        (Resources(32), {}, {"autoscale": SCALE}, None),
        (Resources(32, custom={"tpu": 99}), {"zone": "c"}, {"autoscale": SCALE}, None),
        (
            Resources(33),
            {},
            {"autoscale": SCALE},
            "asks for 33 CPU; the largest node may have 32 CPU + 64GiB",
        ),
        (
            Resources(17),
            {},
            {"autoscale": {"max": SCALE["max"]}},
            "asks for 17 CPU; the largest alive node has 16",
        ),
    ],
)
def test_a_misfit_is_told_with_the_numbers(
    need: Resources, selector: dict[str, str], cluster: dict[str, Any], reason: str | None
) -> None:
    nodes = [make_node(8, 64, labels={"zone": "b"}, tpu=4), make_node(16, 64, 1, labels={"zone": "a"})]
    found = misfit(need, selector, make_cluster(**cluster), nodes)
    assert found == reason if reason is None else (found or "").startswith(reason)


def test_a_cluster_without_nodes_fits_nothing_unless_it_grows() -> None:
    assert misfit(Resources(1), {}, make_cluster(), []) == "asks for 1 CPU; no node is alive"
    assert misfit(Resources(1), {}, make_cluster(autoscale=SCALE), []) is None
