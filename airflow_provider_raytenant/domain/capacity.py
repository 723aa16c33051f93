"""How many slots a group of nodes has, from what Ray says of its nodes and the file of its growth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_raytenant.domain.labels import matches
from airflow_provider_raytenant.domain.resources import Resources, slots_for, whole_slots_in
from airflow_provider_raytenant.domain.tenants import Autoscale, Cluster, Group


@dataclass(frozen=True)
class Node:
    """An alive Ray node: its totals (not what is free), its labels, and when it started (epoch seconds)."""

    node_id: str
    total: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    is_head: bool = False
    started_at: float | None = None


@dataclass(frozen=True)
class GroupSize:
    """Slots of a group: ``live`` on today's nodes, ``slots`` what its pools may share.

    The two differ where the cluster scales by itself (the configured maximum counts, so that a
    cluster scaled to zero still gets demand). The reserve is taken off both. ``why`` says how the
    number came about, for people.
    """

    slots: int
    live: int
    why: str


def group_sizes(cluster: Cluster, nodes: Iterable[Node]) -> dict[str, GroupSize]:
    """The size of every group of the cluster, in the order of the file.

    A node's whole slots count by themselves, since a slot never spans two nodes. A head that takes
    no work has no CPU among its resources and so no slots.
    """
    nodes = list(nodes)
    sizes = {}
    for name, group in cluster.groups.items():
        slot = group.slot.resources
        members = [node for node in nodes if group_of_node(cluster, node) == name]
        live = sum(whole_slots_in(_usable(node.total, cluster.usable), slot) for node in members)
        reserved = _reserved_slots(cluster, group, name)
        grown = max(live, _autoscaled_slots(cluster, group, name))
        why = f"{live} on {len(members)} node{'' if len(members) == 1 else 's'}"
        if grown > live:
            why += f", up to {grown} by autoscaling"
        if reserved:
            why += f", less {reserved} in reserve"
        sizes[name] = GroupSize(max(0, grown - reserved), max(0, live - reserved), why)
    return sizes


def group_of_node(cluster: Cluster, node: Node) -> str | None:
    """The group a node belongs to: by labels first, then by having GPUs; ``None`` if to no one."""
    for name, group in cluster.groups.items():
        if group.labels and all(node.labels.get(key) == value for key, value in group.labels.items()):
            return name
    unlabelled = [name for name, group in cluster.groups.items() if not group.labels]
    with_gpus = [name for name in unlabelled if cluster.groups[name].slot.gpus]
    without = [name for name in unlabelled if not cluster.groups[name].slot.gpus]
    if node.total.gpus and with_gpus:
        return with_gpus[0]
    return without[0] if without else None


def misfit(
    need: Resources, selector: Mapping[str, str], cluster: Cluster, nodes: Sequence[Node]
) -> str | None:
    """Why ``need`` fits no node, with the numbers; ``None`` when it fits one.

    Alive nodes count, and the configured largest node of an autoscaling cluster (whose labels and
    custom resources nobody knows beforehand, so these are not held against it).
    """
    eligible = [node for node in nodes if matches(selector, node.labels)]
    if any(need.fits_in(node.total) for node in eligible):
        return None
    largest = cluster.autoscale.largest_node if cluster.autoscale else None
    if largest is not None:
        plain = Resources(need.cpus, need.memory, need.gpus)
        if plain.fits_in(largest.resources):
            return None
        return f"asks for {need}; the largest node may have {largest.resources}"
    if not nodes:
        return f"asks for {need}; no node is alive"
    if not eligible:
        return f"asks for a node with {dict(selector)}; no alive node has these labels"
    best = max((node.total for node in eligible), key=lambda r: (r.cpus, r.memory, r.gpus))
    shown = Resources(best.cpus, best.memory, best.gpus, {n: best.custom.get(n, 0.0) for n in need.custom})
    return f"asks for {need}; the largest alive node has {shown}"


def _usable(total: Resources, share: float) -> Resources:
    """The share of CPU and memory; GPUs are whole devices, of which nothing is kept back."""
    return replace(total.times(share), gpus=total.gpus)


def _reserved_slots(cluster: Cluster, group: Group, name: str) -> int:
    """The reserve in slots: CPU and memory from the default group, GPUs from groups that have them."""
    reserve = cluster.reserve.resources
    if name == cluster.default_group:
        part = reserve if group.slot.gpus else Resources(reserve.cpus, reserve.memory)
    elif group.slot.gpus:
        part = Resources(gpus=reserve.gpus)
    else:
        return 0
    return slots_for(part, group.slot.resources) if part != Resources() else 0


def _autoscaled_slots(cluster: Cluster, group: Group, name: str) -> int:
    """Slots of the configured maximum; GPU groups grow by the maximum's GPUs only."""
    scale, slot = cluster.autoscale, group.slot.resources
    if scale is None:
        return 0
    if name == cluster.default_group:
        return _slots_on_full_nodes(scale, cluster.usable, slot)
    if not slot.gpus:
        return 0
    return whole_slots_in(Resources(gpus=scale.max.gpus), Resources(gpus=slot.gpus))


def _slots_on_full_nodes(scale: Autoscale, usable: float, slot: Resources) -> int:
    """The maximum cut into largest nodes, if these are known, since a slot never spans two nodes."""
    most = scale.max.resources
    if scale.largest_node is None:
        return whole_slots_in(_usable(most, usable), slot)
    node = scale.largest_node.resources
    count = whole_slots_in(most, node)
    rest = Resources(
        most.cpus - node.cpus * count, most.memory - node.memory * count, most.gpus - node.gpus * count
    )
    return count * whole_slots_in(_usable(node, usable), slot) + whole_slots_in(_usable(rest, usable), slot)
