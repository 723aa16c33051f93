"""The nodes: who is there, whether the head is left alone, whether slots fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning
from airflow_provider_raytenant.domain.capacity import Node, group_of_node
from airflow_provider_raytenant.domain.quantities import format_count
from airflow_provider_raytenant.domain.resources import Resources, whole_slots_in
from airflow_provider_raytenant.domain.tenants import Cluster
from airflow_provider_raytenant.domain.wording import count


def judge_head(nodes: Sequence[Node]) -> Finding:
    """A head that works may run out of memory, and every job of the cluster goes with it."""
    working = [node for node in nodes if node.is_head and node.total.cpus > 0]
    if not working:
        return ok("head", "takes no work")
    alone = " and is the only node" if len(nodes) == 1 else ""
    return warning(
        "head",
        f"takes work ({format_count(working[0].total.cpus)} CPU){alone}: a job that uses up its memory "
        "ends every job of the cluster",
        "Start the head with `--num-cpus=0`, and nodes beside it.",
    )


def judge_nodes(cluster: Cluster, nodes: Sequence[Node]) -> Iterator[Finding]:
    """How many there are, and for each group whether a slot of it fits on one of them."""
    total = sum((_plain(node.total) for node in nodes), Resources())
    if nodes:
        yield ok("nodes", f"{count(len(nodes), 'node')} alive, together {total}")
    elif cluster.autoscale:
        yield ok("nodes", "none alive; the cluster scales by itself")
    else:
        yield failure("nodes", "none alive", "Start nodes, or look at the cluster's own logs.")
    for name in cluster.groups:
        yield _judge_group(cluster, name, nodes)


def _judge_group(cluster: Cluster, name: str, nodes: Sequence[Node]) -> Finding:
    check, slot = f"group {name}"[:14], cluster.groups[name].slot.resources
    members = [node for node in nodes if group_of_node(cluster, node) == name]
    usable = [_usable(node.total, cluster.usable) for node in members]
    slots = sum(whole_slots_in(each, slot) for each in usable)
    if slots:
        return ok(check, f"slots of {slot}: {slots}, on {count(len(members), 'node')}")
    largest = cluster.autoscale.largest_node if cluster.autoscale else None
    if largest is not None:
        room = _usable(largest.resources, cluster.usable)
        if slot.gpus or whole_slots_in(room, slot):
            return ok(check, f"no slot of {slot} today; the cluster scales by itself")
        return failure(
            check,
            f"a slot of {slot} is larger than the largest node may be ({room} usable)",
            f"Make the slot of group {name} smaller, or correct `largest_node`.",
        )
    if cluster.autoscale:
        return ok(check, f"no slot of {slot} today; the cluster scales by itself")
    if not members:
        return failure(
            check,
            "no node belongs to it",
            f"Start nodes of group {name} (its labels, or GPUs), or take the group out of the tenant file.",
        )
    best = max(usable, key=lambda each: (each.cpus, each.memory, each.gpus))
    return failure(
        check,
        f"a slot of {slot} is larger than its largest node ({_plain(best)} usable)",
        f"Make the slot of group {name} smaller, or give it larger nodes.",
    )


def _usable(total: Resources, share: float) -> Resources:
    part = total.times(share)
    return Resources(part.cpus, part.memory, total.gpus)


def _plain(total: Resources) -> Resources:
    return Resources(total.cpus, total.memory, total.gpus)
