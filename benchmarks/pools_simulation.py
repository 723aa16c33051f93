"""A discrete simulation of Airflow's scheduler over pools of slots, for ``make bench SUITE=pools``.

In a pool the scheduler takes tasks by priority, then logical date, then map index. One that does not fit
into the open slots is passed over, and smaller ones behind it in the same pool start: "we can execute tasks
with lower priority if there's enough room" in ``_executable_task_instances_to_queued`` of
airflow/jobs/scheduler_job_runner.py (Airflow 3.3). It looks at some tasks at a time (``max_tis_per_query``)
and leaves those that did not fit out of its next query, so over several passes it comes to all that fit (a
test of the allocation's model shows it). Here these passes take no time, and come whenever a task arrives or
ends, or pools change.
"""

from __future__ import annotations

import heapq
import math
import statistics
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_raytenant.domain.allocation import URGENT, Member, allocate
from airflow_provider_raytenant.domain.patience import LEAST, patience_of
from airflow_provider_raytenant.domain.water_level import Part, held_at, level_of
from benchmarks.pools_traces import Task, Trace

SYNC_EVERY = 5.0
"""Seconds between two syncs of the elastic pools; fairness is looked at as often."""

_ENDS, _ARRIVES, _SYNC, _LOOK = 0, 1, 2, 3
_NEVER = 3600.0
"""Seconds with nothing running and nothing to come, after which what still waits will never run."""


class Queue:
    """The waiting tasks of a pool in start order, by slots so that the first that fits is found at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_slots: dict[int, deque[Task]] = {}
        self.occupied = self.waiting = 0
        self.first: Task | None = None
        self.first_since = 0.0
        self.running: dict[int, tuple[int, float]] = {}
        """Slots and start of each task that runs."""

    def add(self, task: Task, now: float) -> None:
        """A task that became ready."""
        self.by_slots.setdefault(task.slots, deque()).append(task)
        self.waiting += task.slots
        self._look(now)

    def next(self, most: float) -> Task | None:
        """The first in order of those that take at most ``most`` slots."""
        fitting = [line[0] for slots, line in self.by_slots.items() if slots <= most and line]
        return min(fitting, key=lambda task: task.order, default=None)

    def start(self, task: Task, now: float) -> None:
        """The task leaves the queue and holds its slots."""
        self.by_slots[task.slots].popleft()
        self.waiting -= task.slots
        self.occupied += task.slots
        self.running[task.order] = task.slots, now
        if task is self.first:
            self._look(now)

    def end(self, task: Task) -> None:
        """The task gives its slots back."""
        self.occupied -= task.slots
        del self.running[task.order]

    def in_order(self, most: int) -> Iterator[int]:
        """Slots of waiting tasks in start order, until they come to ``most``."""
        total = 0
        for task in heapq.merge(*self.by_slots.values(), key=lambda task: task.order):
            yield task.slots
            total += task.slots
            if total >= most:
                return

    def _look(self, now: float) -> None:
        first = self.next(math.inf)
        if first is not self.first:
            self.first, self.first_since = first, now


class Policy(ABC):
    """Says which tasks start."""

    def begin(self, trace: Trace) -> None:
        self.trace = trace
        self.queues = {pool.name: Queue(pool.name) for tenant in trace.tenants for pool in tenant.members}

    @abstractmethod
    def starts(self, now: float, pool: str | None) -> Iterator[Task]:
        """Tasks to start, each taken from its queue; ``pool`` is the one where something happened."""

    def sync(self, now: float) -> None:
        """Every :data:`SYNC_EVERY` seconds; only elastic pools have something to do."""
        return


class NoPool(Policy):
    """Everything starts when it is ready."""

    def starts(self, now: float, pool: str | None) -> Iterator[Task]:
        if pool is not None:
            yield from _fill(self.queues[pool], math.inf, now)


class SharedPool(Policy):
    """One pool for all, with as many slots as the group has."""

    def begin(self, trace: Trace) -> None:
        super().begin(trace)
        one = Queue("all")
        self.queues = dict.fromkeys(self.queues, one)

    def starts(self, now: float, pool: str | None) -> Iterator[Task]:
        yield from _fill(next(iter(self.queues.values())), self.trace.capacity, now)


def _in_proportion(slots: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers that sum to ``slots``: largest remainders, ties by name."""
    total = sum(weights.values())
    exact = {name: slots * weight / total for name, weight in weights.items()}
    sizes = {name: int(part) for name, part in exact.items()}
    by_remainder = sorted(weights, key=lambda name: (sizes[name] - exact[name], name))
    for name in by_remainder[: slots - sum(sizes.values())]:
        sizes[name] += 1
    return sizes


class FixedPools(Policy):
    """A pool of its own size for each; nothing changes these."""

    def begin(self, trace: Trace) -> None:
        super().begin(trace)
        tenants = _in_proportion(trace.capacity, {tenant.name: tenant.weight for tenant in trace.tenants})
        self.sizes: dict[str, int] = {}
        for tenant in trace.tenants:
            self.sizes |= _in_proportion(tenants[tenant.name], {pool.name: 1.0 for pool in tenant.members})

    def starts(self, now: float, pool: str | None) -> Iterator[Task]:
        for name in self.queues if pool is None else [pool]:
            yield from _fill(self.queues[name], self.sizes[name], now)


class Elastic(FixedPools):
    """Pools that :func:`allocate` sizes anew at every sync."""

    def sync(self, now: float) -> None:
        members = [
            replace(tenant, members=[self._member(pool.name, now) for pool in tenant.members])
            for tenant in self.trace.tenants
        ]
        running = [each for queue in self.queues.values() for each in queue.running.values()]
        patience = patience_of((slots, now - since) for slots, since in running)
        self.sizes = allocate(self.trace.capacity, members, patience=patience)

    def _member(self, name: str, now: float) -> Member:
        queue = self.queues[name]
        waiting = list(queue.in_order(self.trace.capacity))
        first_for = now - queue.first_since if waiting else 0.0
        return Member(name, occupied=queue.occupied, waiting=waiting, first_for=first_for)


class Ideal(Policy):
    """No pools: each slot, the moment it comes free, goes to the tenant that holds least for its weight.

    Slots are kept for the task that has been first in line longest, once that is as long as tasks run on
    average (it knows), and at first others go around it within their fair shares of the rest. Without one,
    slots are kept for the tenant that holds least, if its next task is within its fair share. What does not
    fit else is passed over.
    """

    def begin(self, trace: Trace) -> None:
        super().begin(trace)
        self.free = trace.capacity
        self.own = {t.name: [self.queues[pool.name] for pool in t.members] for t in trace.tenants}
        self.weights = {tenant.name: tenant.weight for tenant in trace.tenants}
        self.patience = max(LEAST, statistics.fmean(task.runs_for for task in trace.tasks))

    def starts(self, now: float, pool: str | None) -> Iterator[Task]:
        self.free = self.trace.capacity - sum(queue.occupied for queue in self.queues.values())
        kept = 0
        starving = [q for q in self.queues.values() if q.first and now - q.first_since >= self.patience]
        for queue in sorted(starving, key=lambda queue: queue.first_since):
            if queue.first is None:
                continue
            if queue.first.slots > self.free:
                if now - queue.first_since >= URGENT * self.patience:
                    return
                kept = queue.first.slots
                break
            yield self._start(queue, queue.first, now)
        yield from self._by_turn(now, kept)

    def _by_turn(self, now: float, kept: int) -> Iterator[Task]:
        turns = [(self._turn(name), name) for name, own in self.own.items() if any(q.waiting for q in own)]
        heapq.heapify(turns)
        level = None
        while turns and self.free:
            _, name = turns[0]
            for queue in sorted(self.own[name], key=lambda queue: (queue.occupied, queue.first_since)):
                task = queue.next(self.free)
                if kept or (queue.first and task is not queue.first):
                    level = self._level(kept) if level is None else level
                    if kept and task and not self._is_due(name, task, level):
                        continue
                    if not kept and queue.first and self._is_due(name, queue.first, level):
                        return
                if task:
                    yield self._start(queue, task, now)
                    heapq.heapreplace(turns, (self._turn(name), name))
                    break
            else:
                heapq.heappop(turns)

    def _level(self, kept: int) -> float:
        """The fair level of slots for one of weight, in what is left beside ``kept``."""
        parts = [
            Part(0, 0, self.weights[name], sum(q.occupied + q.waiting for q in own))
            for name, own in self.own.items()
        ]
        return level_of(self.trace.capacity - kept, parts)

    def _is_due(self, name: str, task: Task, level: float) -> bool:
        return sum(q.occupied for q in self.own[name]) + task.slots <= level * self.weights[name]

    def _turn(self, name: str) -> tuple[float, float]:
        own = self.own[name]
        waits = min((queue.first_since for queue in own if queue.first), default=math.inf)
        return sum(queue.occupied for queue in own) / self.weights[name], waits

    def _start(self, queue: Queue, task: Task, now: float) -> Task:
        queue.start(task, now)
        self.free -= task.slots
        return task


def _fill(queue: Queue, size: float, now: float) -> Iterator[Task]:
    while task := queue.next(size - queue.occupied):
        queue.start(task, now)
        yield task


@dataclass
class Outcome:
    """What came of a trace under a policy. Waits are in seconds, by tenant."""

    makespan: float = 0.0
    peak: int = 0
    never_ran: int = 0
    waits: dict[str, list[float]] = field(default_factory=dict)
    had: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Slot-seconds of each tenant while more was wanted than there is."""
    fair: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What would have been its share then: weighted max-min of what is wanted."""


def simulate(trace: Trace, policy: Policy) -> Outcome:
    """Run the trace to its end, or until nothing that waits will ever run."""
    policy.begin(trace)
    outcome, changed = Outcome(), 0.0
    holds, wants = Counter[str](), Counter[str]()
    events: list[tuple[float, int, int, Task | None]] = [
        (task.arrives, _ARRIVES, task.order, task) for task in trace.tasks
    ]
    events += [(0.0, _SYNC, -1, None), (SYNC_EVERY / 2, _LOOK, -1, None)]
    heapq.heapify(events)
    left = len(trace.tasks)
    while left:
        now, kind, _, task = heapq.heappop(events)
        if task is None:
            if len(events) == 1 and now - changed > _NEVER:
                break
            if kind == _SYNC:
                policy.sync(now)
            else:
                _look_at_shares(trace, holds, wants, outcome)
            heapq.heappush(events, (now + SYNC_EVERY, kind, -1, None))
        elif kind == _ARRIVES:
            policy.queues[task.pool].add(task, now)
            wants[task.tenant] += task.slots
        else:
            policy.queues[task.pool].end(task)
            holds[task.tenant] -= task.slots
            left -= 1
            outcome.makespan = now
        for ready in policy.starts(now, task.pool if task else None):
            holds[ready.tenant] += ready.slots
            wants[ready.tenant] -= ready.slots
            outcome.peak = max(outcome.peak, sum(holds.values()))
            outcome.waits.setdefault(ready.tenant, []).append(now - ready.arrives)
            heapq.heappush(events, (now + ready.runs_for, _ENDS, ready.order, ready))
            changed = now
    outcome.never_ran = left
    return outcome


def _look_at_shares(trace: Trace, holds: Counter[str], wants: Counter[str], outcome: Outcome) -> None:
    """What everyone holds, and what its share would be, while more is wanted than there is."""
    if sum(holds.values()) + sum(wants.values()) <= trace.capacity:
        return
    parts = [Part(0, 0, t.weight, holds[t.name] + wants[t.name]) for t in trace.tenants]
    level = level_of(trace.capacity, parts)
    for tenant, part in zip(trace.tenants, parts, strict=True):
        outcome.had[tenant.name] += holds[tenant.name] * SYNC_EVERY
        outcome.fair[tenant.name] += held_at(level, part) * SYNC_EVERY
