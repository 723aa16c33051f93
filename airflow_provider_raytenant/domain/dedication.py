"""Nodes that are a tenant's alone: which they are, and how its jobs get there and all others do not.

Every alive node belongs to one *set*: to the first dedicated nodes of the file that hold it, or to the
common nodes. A tenant's pools are about its own set and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from airflow_provider_raytenant.domain.capacity import Node, misfit
from airflow_provider_raytenant.domain.file_parts import Amount
from airflow_provider_raytenant.domain.labels import combined
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import Cluster, DedicatedNodes
from airflow_provider_raytenant.exceptions import PolicyError

TOKEN_AMOUNT: Final = 0.001
"""How much of the custom resource each request takes, so that 1 on a node does for 1000 requests. Ray counts
in steps of 0.0001."""

Sets = Sequence[DedicatedNodes]
"""The dedicated nodes of a cluster, each once, in the order of the file."""


def distinct(all_nodes: Iterable[DedicatedNodes | None]) -> list[DedicatedNodes]:
    """Each dedicated nodes once, in the order given: tenants that name the same share them."""
    sets: list[DedicatedNodes] = []
    for nodes in all_nodes:
        if nodes is not None and not any(nodes.is_same(known) for known in sets):
            sets.append(nodes)
    return sets


def is_of(own: DedicatedNodes | None, other: DedicatedNodes | None) -> bool:
    """Whether both name the same set; ``None`` is the common nodes."""
    return own is other or (own is not None and other is not None and own.is_same(other))


def nodes_of(own: DedicatedNodes | None, sets: Sets, nodes: Iterable[Node]) -> list[Node]:
    """The nodes that count for tenants of this set."""

    def owner(node: Node) -> DedicatedNodes | None:
        return next((one for one in sets if one.holds(node.labels, node.total.custom)), None)

    return [node for node in nodes if is_of(owner(node), own)]


def cluster_of(own: DedicatedNodes | None, cluster: Cluster) -> Cluster:
    """The cluster as tenants of this set have it: reserve and growth of the common nodes are not theirs."""
    if own is None:
        return cluster
    return cluster.model_copy(update={"reserve": Amount(), "autoscale": own.autoscale})


def driver_selector(
    tenant: str, own: DedicatedNodes | None, sets: Sets, selector: Mapping[str, str] | None
) -> dict[str, str]:
    """The label selector of a driver: the task's own, on the tenant's nodes, off those of others.

    Nodes that stand behind the tenant's own in the file need no keeping off: a node that both hold is
    the tenant's. Nodes told by a resource cannot be kept off by any selector.

    :raises PolicyError: the task asks for other nodes than the tenant's.
    """
    place = next((index for index, one in enumerate(sets) if is_of(own, one)), len(sets))
    others = [{key: f"!{value}" for key, value in (one.label or {}).items()} for one in sets[:place]]
    mine = dict((own.label if own else None) or {})
    try:
        return combined([mine, *others, selector or {}])
    except ValueError as error:
        if own is not None:
            allowed = f"the tenant's own nodes, {own} (leave it out)"
        else:
            allowed = "nodes that are not dedicated to another tenant"
        raise PolicyError(
            f"label_selector: found {dict(selector or {})!r}, and {error}; "
            f"allowed for tenant {tenant}: {allowed}",
            rule="nodes",
        ) from None


def token(own: DedicatedNodes | None) -> dict[str, float]:
    """The custom resource that each request of the tenant's asks for."""
    return {} if own is None or own.resource is None else {own.resource: TOKEN_AMOUNT}


def task_options(tenant: str, own: DedicatedNodes | None, sets: Sets) -> dict[str, Any]:
    """Keyword arguments of ``ray.remote`` that put the job's own tasks and actors where its driver is.

    Ray hands neither the driver's label selector nor its resources on to them, and has no default that could
    (2.60), so it is the job's code that has to pass them.
    """
    options = {"label_selector": driver_selector(tenant, own, sets, None), "resources": token(own)}
    return {name: value for name, value in options.items() if value}


def misfit_of(
    own: DedicatedNodes | None,
    sets: Sets,
    need: Resources,
    selector: Mapping[str, str],
    cluster: Cluster,
    nodes: Iterable[Node],
) -> str | None:
    """Why ``need`` fits none of the nodes of this set; ``None`` when it fits one."""
    reason = misfit(need, selector, cluster_of(own, cluster), nodes_of(own, sets, nodes))
    return reason if reason is None or own is None else f"{reason} among the tenant's own nodes ({own})"
