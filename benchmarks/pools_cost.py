"""What pools cost against an ideal scheduler: a simulation of five ways to share, on five made-up days.

``make bench SUITE=pools``; one core, about three minutes, the same figures on every machine but for the time
of ``allocate``. The ways: no pool, one shared pool, a fixed pool for each tenant, elastic pools with a sync
every 5 s, and *ideal* (:class:`~benchmarks.pools_simulation.Ideal`). The last line is JSON; to reach, on the
worst day of each figure:

``makespan_vs_ideal`` <= 1.05; ``peak_ratio``, the most slots held to those there are, <= 1;
``light_wait_vs_ideal`` <= 1.25 and ``worst_light_wait_vs_ideal`` <= 1.4: mean wait of the light tenants, and
of the one with the longest, less one sync interval, to the ideal's; ``light_wait_vs_shared`` <= 0.5 on
*heavy*; ``jain`` >= 0.95: Jain's index of slot-seconds under contention, each tenant's to its weighted
max-min share; ``allocate_1000x3_ms`` <= 50, and its growth close to linear: twice the tenants take no more
than 2.5 times as long. That is processor time, the best of several, in what syncs meet all day: a full group,
one with some room, a quiet one. The first sync after an outage, with all of the group to give away at once,
takes longer; it is in the figures, but has no aim.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_raytenant.domain.allocation import Member, allocate
from benchmarks.pools_simulation import (
    SYNC_EVERY,
    Elastic,
    FixedPools,
    Ideal,
    NoPool,
    Outcome,
    Policy,
    SharedPool,
    simulate,
)
from benchmarks.pools_traces import TRACES, Trace

POLICIES: dict[str, type[Policy]] = {
    "none": NoPool,
    "shared": SharedPool,
    "fixed": FixedPools,
    "elastic": Elastic,
    "ideal": Ideal,
}
RUNS = {"heavy": 8, "bursty": 8, "large": 8, "long": 4, "wide": 2}
"""Seeds of each trace. One day's makespan hangs on when its last long task happens to start."""

MOST = {
    "makespan_vs_ideal": 1.05,
    "peak_ratio": 1.0,
    "light_wait_vs_ideal": 1.25,
    "worst_light_wait_vs_ideal": 1.4,
    "light_wait_vs_shared": 0.5,
    "allocate_1000x3_ms": 50.0,
    "allocate_growth": 2.5,
}
LEAST = {"jain": 0.95}
ROUNDS = 25


@dataclass
class Tally:
    """A policy on all runs of a trace. Times in seconds."""

    makespan: float = 0.0
    at_best: float = 0.0
    """The work by the slots there are, summed as the makespans are."""
    peak: float = 0.0
    jain: float = 1.0
    never_ran: int = 0
    waits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By light tenant."""

    def add(self, trace: Trace, outcome: Outcome) -> None:
        self.makespan += outcome.makespan
        self.at_best += trace.slot_seconds / trace.capacity
        self.peak = max(self.peak, outcome.peak / trace.capacity)
        self.jain = min(self.jain, jain(outcome.had, outcome.fair))
        self.never_ran += outcome.never_ran
        for tenant in trace.light:
            self.waits[tenant] += outcome.waits.get(tenant, [])

    @property
    def light_wait(self) -> float:
        return statistics.fmean(wait for waits in self.waits.values() for wait in waits)

    @property
    def worst_light_wait(self) -> float:
        return max(statistics.fmean(waits) for waits in self.waits.values() if waits)

    def row(self) -> dict[str, float]:
        return {
            "makespan_vs_bound": round(self.makespan / self.at_best, 3),
            "peak_ratio": round(self.peak, 3),
            "light_wait": round(self.light_wait, 1),
            "worst_light_wait": round(self.worst_light_wait, 1),
            "jain": round(self.jain, 3),
            "never_ran": self.never_ran,
        }


def jain(had: Mapping[str, float], fair: Mapping[str, float]) -> float:
    """1 where everyone had the same part of its share, 1/n where one had all."""
    parts = [had[tenant] / share for tenant, share in fair.items() if share > 0]
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts)) if any(parts) else 1.0


def run(name: str, make: Callable[[int], Trace]) -> dict[str, Tally]:
    """All policies on all runs of a trace."""
    tallies = {policy: Tally() for policy in POLICIES}
    for seed in range(RUNS[name]):
        trace = make(seed)
        for policy, tally in tallies.items():
            tally.add(trace, simulate(trace, POLICIES[policy]()))
    return tallies


def figures_of(tallies: dict[str, Tally]) -> dict[str, float]:
    """What a trace says of the elastic pools."""
    elastic, ideal, shared = tallies["elastic"], tallies["ideal"], tallies["shared"]
    return {
        "makespan_vs_ideal": elastic.makespan / ideal.makespan,
        "peak_ratio": elastic.peak,
        "light_wait_vs_ideal": beyond_a_sync(elastic.light_wait, ideal.light_wait),
        "worst_light_wait_vs_ideal": beyond_a_sync(elastic.worst_light_wait, ideal.worst_light_wait),
        "light_wait_vs_shared": elastic.light_wait / shared.light_wait,
        "jain": elastic.jain,
    }


def beyond_a_sync(wait: float, ideal: float) -> float:
    """A wait to the ideal's, where only what is longer by more than one sync interval counts."""
    return max(wait - SYNC_EVERY, ideal) / ideal


def group(tenants: int, held: int, waiting: int) -> list[Member]:
    """Tenants with three pools each: up to ``held`` slots in a pool, ``waiting`` tasks in some."""
    rng = random.Random(f"group {held} {waiting}")
    members = []
    for number in range(tenants):
        pools = [
            Member(
                f"t{number}.{kind}",
                weight=rng.choice([1.0, 2.0]),
                occupied=rng.randint(0, held),
                waiting=[rng.choice([1, 1, 2, 3, 4]) for _ in range(rng.choice([0, 2, waiting]))],
                first_for=rng.uniform(0, 200),
            )
            for kind in ("main", "large", "backfill")
        ]
        weight, guarantee = rng.choice([1.0, 1.0, 2.0, 4.0]), rng.choice([0, 4])
        limit = rng.choice([None, 64])
        members.append(Member(f"t{number}", weight, guarantee, limit, members=pools))
    return members


CASES = {"full": (7, 20, 10), "some_room": (7, 20, 12), "quiet": (3, 0, 10), "after_outage": (0, 20, 10)}
"""Of groups: the most held in a pool, the waiting tasks of some, and slots for each tenant."""
ALL_DAY = ("full", "some_room", "quiet")


def allocate_ms(tenants: int) -> dict[str, float]:
    """Milliseconds of ``allocate``, the best of several, by case."""
    result = {}
    for name, (held, waiting, slots) in CASES.items():
        members = group(tenants, held, waiting)
        gc.collect()
        times = []
        for _ in range(ROUNDS):
            begun = time.process_time()
            allocate(slots * tenants, members)
            times.append(1000 * (time.process_time() - begun))
        result[name] = round(min(times), 1)
    return result


def main() -> int:
    """Simulate, print a table for people and a line of JSON; exit code 1 if the aims are missed."""
    traces: dict[str, dict[str, dict[str, float]]] = {}
    by_trace: dict[str, dict[str, float]] = {}
    for make in TRACES:
        tallies = run(make.__name__, make)
        traces[make.__name__] = {policy: tally.row() for policy, tally in tallies.items()}
        by_trace[make.__name__] = figures_of(tallies)
        _print(make.__name__, traces[make.__name__], by_trace[make.__name__])
    sizes = {tenants: allocate_ms(tenants) for tenants in (500, 1000, 2000)}
    for tenants, cases in sizes.items():
        print(f"allocate, {tenants} tenants with 3 pools: {cases} ms")
    figures = worst_of(by_trace)
    figures["allocate_1000x3_ms"] = max(sizes[1000][case] for case in ALL_DAY)
    figures["allocate_after_outage_ms"] = sizes[1000]["after_outage"]
    figures["allocate_growth"] = round(sum(sizes[2000].values()) / sum(sizes[1000].values()), 2)
    reached = all(figures[name] <= most for name, most in MOST.items())
    reached = reached and all(figures[name] >= least for name, least in LEAST.items())
    reached = reached and not any(rows["elastic"]["never_ran"] for rows in traces.values())
    answer: dict[str, Any] = {**figures, "traces": traces}
    print(json.dumps({"suite": "pools", "figures": answer, "reached": reached}))
    return 0 if reached else 1


def worst_of(by_trace: dict[str, dict[str, float]]) -> dict[str, float]:
    """Each figure on its worst trace; the wait in a shared pool is about *heavy* alone."""
    figures = {}
    for name in by_trace["heavy"]:
        values = [figures[name] for figures in by_trace.values()]
        worst = min(values) if name in LEAST else max(values)
        figures[name] = round(by_trace["heavy"][name] if name == "light_wait_vs_shared" else worst, 3)
    return figures


def _print(name: str, rows: dict[str, dict[str, float]], figures: dict[str, float]) -> None:
    print(f"{name}: " + ", ".join(f"{figure} {value:.3f}" for figure, value in figures.items()))
    for policy, row in rows.items():
        never = f", {row['never_ran']:g} tasks never ran" if row["never_ran"] else ""
        print(
            f"  {policy:8} makespan {row['makespan_vs_bound']:5.2f} x the bound, "
            f"peak {row['peak_ratio']:5.2f}, light tenants wait {row['light_wait']:6.1f} s, "
            f"the worst {row['worst_light_wait']:6.1f} s, Jain {row['jain']:.3f}{never}",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
