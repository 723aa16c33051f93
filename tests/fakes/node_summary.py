"""``GET /nodes?view=summary`` as Ray 2.60 answers it, as far as anybody reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NO_ACTOR = "f" * 32


@dataclass
class Worker:
    """A process of a task, or of an actor, and what it lists as its own.

    ``used`` is in Ray's own names, ``{"CPU": 1, "my_fpga": 2}``.
    """

    used: Mapping[str, float] = field(default_factory=dict)
    pending: int = 0
    actor: str = NO_ACTOR

    def row(self, job_id: str) -> dict[str, Any]:
        """As the summary lists it, with the names spelt its way."""
        used = {
            _camel(name): {"resourceSlots": [{"slot": "0", "allocation": float(amount)}]}
            for name, amount in self.used.items()
        }
        return {
            "jobId": job_id,
            "workerType": "WORKER",
            "actorId": self.actor,
            "numPendingTasks": self.pending,
            "numRunningTasks": "1",
            "usedResources": used,
        }


def summary(nodes: Sequence[Mapping[str, Any]], jobs: Mapping[str, Sequence[Worker]]) -> dict[str, Any]:
    """The answer: all drivers and workers on the first node that lives.

    :param nodes: rows as ``/api/v0/nodes`` has them.
    :param jobs: the workers of each driver, by Ray's own job id.
    """
    drivers = [
        {**Worker(pending=len(workers)).row(job_id), "workerType": "DRIVER", "numRunningTasks": "0"}
        for job_id, workers in jobs.items()
    ]
    rows = [*drivers, *(worker.row(job_id) for job_id, workers in jobs.items() for worker in workers)]
    listed: list[dict[str, Any]] = []
    for node in nodes:
        raylet: dict[str, Any] = {"nodeId": node["node_id"], "state": node["state"]}
        if node["state"] == "ALIVE":
            raylet |= {"storeStats": {}, "numWorkers": len(rows), "coreWorkersStats": rows}
            rows = []
        listed.append({"hostname": "a", "ip": "127.0.0.1", "cpu": 1.5, "raylet": raylet})
    return {
        "result": True,
        "msg": "Node summary fetched.",
        "data": {"summary": listed, "nodeLogicalResources": {}},
    }


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)
