"""What every job on a cluster holds: one request for all of them, whose cost knows no tasks.

``GET /nodes?view=summary`` is the one answer of Ray 2.60's dashboard that says so at a price which depends
on nodes and worker processes alone: with 0, 1000 and 20000 finished tasks, and with 200 queued ones, it was
18 KB and 4 to 7 ms of server CPU. ``/api/v0/tasks`` for the running tasks of one job went from 5 to 290 ms
of the head's own store, since it goes through all that finished; ``/api/v0/tasks/summarize`` to 4 s;
``/nodes/<id>`` brings each actor that ever was on the node (``benchmarks/usage_cost.py``). The dashboard
gathers these figures every 15 s anyway (``NODE_STATS_UPDATE_INTERVAL_SECONDS``); asking only reads them.

What they say is a lower bound, so that nobody is accused in vain:

- A task that waits in ``ray.get`` has given its CPUs back, but still lists them, and only its own pending
  tasks tell: where a task has some, its CPUs do not count. Actors do not give theirs back (all measured).
- What of a placement group is reserved, but used by nobody, does not count.
- A peak between two samples is not seen.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from airflow_provider_raytenant.domain.dedication import TOKEN_AMOUNT
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.usage import UsageSample
from airflow_provider_raytenant.exceptions import RayTenantError, RayUnavailableError
from airflow_provider_raytenant.ray_api.listing import elements

PATH: Final = "/nodes?view=summary&nocache=1"
"""With Ray's cache, whoever asks after its two seconds is given what the one before them had asked for."""

INTERVAL: Final = 10.0
"""Seconds between two samples: below the dashboard's own 15 s, so that none of its figures is missed."""

SHARE: Final = 0.01
"""Samples take at most this share of the time: one that took 300 ms is followed by a pause of 30 s."""

LONGEST_PAUSE: Final = 600.0

_SUMMARY = re.compile(r'"summary"\s*:\s*(?=\[)')
_COUNTED: Final = frozenset({"CPU", "memory", "GPU"})
_NO_ACTOR: Final = frozenset({"", "f" * 32})
_BUNDLE: Final = re.compile(r"(.+)Group(\d*)[0-9a-f]{36}", re.IGNORECASE)
"""What is used of a placement group: ``CPU_group_<id>`` and, of a bundle that was named,
``CPU_group_<index>_<id>`` beside it, both as the summary spells them."""

log = logging.getLogger(__name__)


def parse_usage(text: str) -> UsageSample:
    """The sample in an answer to :data:`PATH`.

    :raises RayUnavailableError: it is no such answer.
    :raises ValueError: it is no JSON.
    """
    found = _SUMMARY.search(text)
    if found is None:
        raise RayUnavailableError(f"Ray gave no summary of its nodes, but {text[:200]!r}")
    held: dict[str, dict[str, float]] = {}
    told = nodes = 0
    try:
        for row in elements(text, found.end()):
            raylet = row["raylet"]
            if raylet.get("state") != "ALIVE":
                continue
            # A node, or a dashboard, that has just come has no figures of any kind yet.
            nodes += "storeStats" in raylet
            told += "coreWorkersStats" in raylet
            for worker in raylet.get("coreWorkersStats", ()):
                _add(worker, held.setdefault(str(worker["jobId"]), {}))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RayUnavailableError(f"Ray gave no sound summary of its nodes ({error!r})") from error
    if nodes and not told:
        raise RayUnavailableError("Ray's summary of its nodes does not say what their workers hold")
    return UsageSample({job_id: _resources(amounts) for job_id, amounts in held.items()})


def _add(worker: dict[str, Any], amounts: dict[str, float]) -> None:
    """Add what one worker process holds."""
    waits = int(worker.get("numPendingTasks", 0)) > 0 and worker.get("actorId", "") in _NO_ACTOR
    for name, amount in _amounts(worker.get("usedResources") or {}):
        # Small ones mark a place: a node, a bundle, the nodes of a tenant.
        if not (waits and name == "CPU") and (name in _COUNTED or amount > TOKEN_AMOUNT):
            amounts[name] = amounts.get(name, 0.0) + amount


def _resources(amounts: dict[str, float]) -> Resources:
    custom = {name: round(amount, 4) for name, amount in amounts.items() if name not in _COUNTED}
    return Resources(
        cpus=round(amounts.get("CPU", 0.0), 4),
        memory=int(amounts.get("memory", 0)),
        gpus=round(amounts.get("GPU", 0.0), 4),
        custom=custom,
    )


def _amounts(used: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, resource in used.items():
        amount = sum(float(slot["allocation"]) for slot in resource["resourceSlots"])
        bundle = _BUNDLE.fullmatch(name)
        if bundle is None:
            yield name, amount
        elif not bundle[2] and bundle[1] != "bundle":
            yield bundle[1], amount


class UsageSampler:
    """The newest sample for everybody who watches a job of a cluster; belongs to one event loop.

    :param read: makes the request.
    """

    def __init__(self, read: Callable[[], Coroutine[Any, Any, UsageSample]]) -> None:
        self._read = read
        self._sample: UsageSample | None = None
        self._task: asyncio.Task[UsageSample] | None = None
        self._begun = 0.0
        self._not_before = 0.0
        self._failures = 0
        self._problem: str | None = None

    @property
    def newest(self) -> UsageSample | None:
        """The newest sample that there is."""
        return self._sample

    @property
    def problem(self) -> str | None:
        """Why there are no samples; ``None`` while there are, and after a single failure."""
        return self._problem if self._failures > 1 else None

    def refresh(self) -> None:
        """Ask for another sample, if it is time; never waits, never raises."""
        loop = asyncio.get_running_loop()
        if self._task is None and loop.time() >= self._not_before:
            self._begun = loop.time()
            self._task = asyncio.create_task(self._read(), name="sample of what Ray jobs hold")
            self._task.add_done_callback(self._done)

    async def close(self) -> None:
        """Give up what is under way."""
        self._not_before = float("inf")
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _done(self, task: asyncio.Task[UsageSample]) -> None:
        self._task = None
        if task.cancelled():
            return
        now = asyncio.get_running_loop().time()
        pause = max(INTERVAL, (now - self._begun) / SHARE)
        error = task.exception()
        if error is None:
            self._sample, self._failures = task.result(), 0
        else:
            if not isinstance(error, RayTenantError):
                log.error("Ray's summary of its nodes met something unknown.", exc_info=error)
            self._failures += 1
            self._problem = str(error)
            pause *= 2.0 ** min(self._failures - 1, 10)
        self._not_before = max(self._not_before, now + min(pause, LONGEST_PAUSE))
