"""Made-up days of a shared cluster, for ``make bench SUITE=pools``: who wants how many slots, and when."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from airflow_provider_raytenant.domain.allocation import Member

MEDIAN_SECONDS, SPREAD, LONGEST = 60.0, 0.6, 300.0
"""Of the lognormal run times; the mean is 72 s."""

MEAN_SECONDS = MEDIAN_SECONDS * math.exp(SPREAD**2 / 2)
SIZES = (1, 1, 2, 4)
"""Slots of ordinary tasks, each as likely."""

_TIMES = 20
"""As long as in *large* do the jobs of *long* run."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task: ``order`` is its place among all that Airflow could start, at equal priority."""

    order: int
    arrives: float
    tenant: str
    pool: str
    slots: int
    runs_for: float


@dataclass
class Trace:
    """A day: the tasks by arrival, the tenants, and which of these are light users."""

    name: str
    capacity: int
    tenants: list[Member]
    light: frozenset[str]
    tasks: list[Task] = field(default_factory=list)

    @property
    def slot_seconds(self) -> float:
        """All the work there is."""
        return sum(task.slots * task.runs_for for task in self.tasks)


@dataclass(frozen=True)
class _Wish:
    arrives: float
    pool: str
    slots: int
    runs_for: float


def _run_time(rng: random.Random) -> float:
    return min(LONGEST, rng.lognormvariate(math.log(MEDIAN_SECONDS), SPREAD))


def _backlog(rng: random.Random, pool: str, at: float, count: int, sizes: tuple[int, ...]) -> Iterator[_Wish]:
    for _ in range(count):
        yield _Wish(at, pool, rng.choice(sizes), _run_time(rng))


def _trickle(
    rng: random.Random, pool: str, until: float, slots: float, sizes: tuple[int, ...] = SIZES
) -> Iterator[_Wish]:
    """Tasks one by one at random times, that take ``slots`` slots on average."""
    pause = MEAN_SECONDS * (sum(sizes) / len(sizes)) / slots
    at = rng.expovariate(1 / pause)
    while at < until:
        yield _Wish(at, pool, rng.choice(sizes), _run_time(rng))
        at += rng.expovariate(1 / pause)


def _trace(
    name: str, capacity: int, wishes: list[_Wish], light: set[str], weights: dict[str, float] | None = None
) -> Trace:
    """Tenants are what stands before the dot of a pool's name. Start order is the order of arrival."""
    pools: dict[str, list[str]] = {}
    for pool in sorted({wish.pool for wish in wishes}):
        pools.setdefault(pool.split(".")[0], []).append(pool)
    tenants = [
        Member(tenant, (weights or {}).get(tenant, 1.0), members=[Member(pool) for pool in own])
        for tenant, own in sorted(pools.items())
    ]
    tasks = [
        Task(order, wish.arrives, wish.pool.split(".")[0], wish.pool, wish.slots, wish.runs_for)
        for order, wish in enumerate(sorted(wishes, key=lambda wish: wish.arrives))
    ]
    return Trace(name, capacity, tenants, frozenset(light), tasks)


def heavy(seed: int) -> Trace:
    """A backfill of 400 tasks at once, beside seven tenants who do as much together, task by task."""
    rng = random.Random(f"heavy {seed}")
    wishes = [*_backlog(rng, "backfill.main", 0.0, 400, SIZES)]
    light = {f"live{n}" for n in range(7)}
    for tenant in sorted(light):
        wishes += _trickle(rng, f"{tenant}.main", 1500.0, 32 / 7)
    return _trace("heavy", 64, wishes, light)


def bursty(seed: int) -> Trace:
    """Four tenants whose DAGs start 30 to 80 tasks now and then, of different weight; four that trickle."""
    rng = random.Random(f"bursty {seed}")
    wishes: list[_Wish] = []
    for n in range(4):
        at = rng.uniform(0, 600)
        while at < 3000:
            wishes += _backlog(rng, f"burst{n}.main", at, rng.randint(30, 80), SIZES)
            at += rng.uniform(400, 800)
    light = {f"live{n}" for n in range(4)}
    for tenant in sorted(light):
        wishes += _trickle(rng, f"{tenant}.main", 3000.0, 3.0)
    return _trace("bursty", 64, wishes, light, {"burst0": 2.0, "burst1": 2.0})


def large(seed: int) -> Trace:
    """Two tenants with tasks of up to half the group, among a backfill and five tenants that trickle."""
    rng = random.Random(f"large {seed}")
    wishes = [*_backlog(rng, "backfill.main", 0.0, 300, SIZES)]
    for n in range(2):
        wishes += _trickle(rng, f"big{n}.large", 2000.0, 6.0, (8, 16, 24, 32))
        wishes += _trickle(rng, f"big{n}.main", 2000.0, 4.0)
    light = {f"live{n}" for n in range(5)}
    for tenant in sorted(light):
        wishes += _trickle(rng, f"{tenant}.main", 2000.0, 4.0)
    return _trace("large", 64, wishes, light)


def wide(seed: int) -> Trace:
    """100 tenants, 10,000 tasks, 1,000 slots: ten with a backlog of 500, ninety that trickle."""
    rng = random.Random(f"wide {seed}")
    wishes: list[_Wish] = []
    for n in range(10):
        wishes += _backlog(rng, f"backfill{n}.main", rng.uniform(0, 300), 500, SIZES)
    light = {f"live{n:02}" for n in range(90)}
    trickles: list[_Wish] = []
    for tenant in sorted(light):
        trickles += _trickle(rng, f"{tenant}.main", 1400.0, 6.0)
    wishes += sorted(trickles, key=lambda wish: wish.arrives)[: 10_000 - len(wishes)]
    return _trace("wide", 1000, wishes, light)


def long(seed: int) -> Trace:
    """As *large*, with jobs that run for twenty times as long, 24 minutes on average."""
    trace = large(seed)
    tasks = [
        replace(task, arrives=_TIMES * task.arrives, runs_for=_TIMES * task.runs_for) for task in trace.tasks
    ]
    return replace(trace, name="long", tasks=tasks)


TRACES: tuple[Callable[[int], Trace], ...] = (heavy, bursty, large, long, wide)
