"""How much of the cluster is spoken for, seen from Ray and from Airflow, sampled while things run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.local.errors import LocalError
from airflow_provider_raytenant.local.ray_cluster import RayCluster

LIVE = ("PENDING", "RUNNING")
_PREFIX = "raytenant."


@dataclass(frozen=True)
class Sample:
    """One look: live jobs by tenant and their summed footprints; ``slots`` is their sum in slots."""

    seconds: float
    footprint: Resources
    slots: int
    jobs_by_tenant: dict[str, int]


@dataclass
class UsageSampler:
    """Samples a cluster's live jobs in a thread of its own, as a context manager.

    The footprints come from the jobs' metadata: Ray does not give entrypoint resources back.
    """

    ray: RayCluster
    interval: float = 0.5
    on_sample: Callable[[Sample], None] = lambda sample: None
    samples: list[Sample] = field(default_factory=list)
    misses: int = 0

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    @property
    def peak(self) -> Sample | None:
        """The sample with the most slots."""
        return max(self.samples, key=lambda sample: sample.slots, default=None)

    @property
    def peak_footprint(self) -> Resources:
        """The largest CPU and the largest memory of all samples, each by itself."""
        return Resources(
            cpus=max((s.footprint.cpus for s in self.samples), default=0.0),
            memory=max((s.footprint.memory for s in self.samples), default=0),
        )

    def _run(self) -> None:
        started = time.monotonic()
        while not self._stop.is_set():
            try:
                jobs = self.ray.api("GET", "/api/jobs/")
            except (LocalError, OSError):
                self.misses += 1
            else:
                sample = _sample(jobs, time.monotonic() - started)
                self.samples.append(sample)
                self.on_sample(sample)
            self._stop.wait(self.interval)


def _sample(jobs: list[dict[str, Any]], seconds: float) -> Sample:
    footprint, slots, by_tenant = Resources(), 0, dict[str, int]()
    for job in jobs:
        metadata = job.get("metadata") or {}
        if job.get("status") not in LIVE or _PREFIX + "footprint" not in metadata:
            continue
        footprint += Resources.from_json(json.loads(metadata[_PREFIX + "footprint"]))
        slots += int(metadata[_PREFIX + "slots"])
        tenant = metadata[_PREFIX + "tenant"]
        by_tenant[tenant] = by_tenant.get(tenant, 0) + 1
    return Sample(seconds, footprint, slots, by_tenant)
