"""Ray's answer about its nodes, read into :class:`Node`.

``/api/v0/nodes?detail=1`` gives ``resources_total`` of every node; dead ones stay listed. Beside real
custom resources it lists ``node:<ip>``, ``node:__internal_head__``, ``object_store_memory`` and
``accelerator_type:<name>``.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.exceptions import RayUnavailableError

_NOT_CUSTOM = frozenset({"CPU", "GPU", "memory", "object_store_memory"})


def parse_nodes(answer: Any) -> list[Node]:
    """The alive nodes of an answer.

    :raises RayUnavailableError: it is no such answer.
    """
    try:
        rows = answer["data"]["result"]["result"]
        return [_node(row) for row in rows if row["state"] == "ALIVE"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RayUnavailableError(
            f"Ray gave no sound list of nodes ({error!r}): {str(answer)[:200]!r}"
        ) from error


def _node(row: dict[str, Any]) -> Node:
    total = row.get("resources_total") or {}
    custom = {
        name: round(float(amount), 4)
        for name, amount in total.items()
        if name not in _NOT_CUSTOM and not name.startswith("node:")
    }
    return Node(
        node_id=str(row["node_id"]),
        total=Resources(
            cpus=round(float(total.get("CPU", 0)), 4),
            memory=int(total.get("memory", 0)),
            gpus=round(float(total.get("GPU", 0)), 4),
            custom=custom,
        ),
        labels={str(key): str(value) for key, value in (row.get("labels") or {}).items()},
        is_head=bool(row.get("is_head_node")),
        started_at=row["start_time_ms"] / 1000 if row.get("start_time_ms") else None,
    )
