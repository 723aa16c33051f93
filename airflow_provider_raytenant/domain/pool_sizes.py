"""The sizes of the pools that share a group's slots, each with the reason in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_provider_raytenant.domain.allocation import PATIENCE, Member, allocate
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.durations import format_duration


@dataclass(frozen=True)
class Claim:
    """What a pool has coming, holds and wants; all in slots.

    :param guarantee: what it gets before others borrow.
    :param weight: its part of what is beyond guarantees.
    :param limit: ``None`` is no limit.
    :param occupied: what Airflow counts: queued, running and deferred tasks.
    :param uncounted: what live Ray jobs hold beside that: a task that was cleared gives its slots back at
        once, while its job still lives.
    """

    pool: str
    guarantee: int = 0
    weight: float = 1.0
    limit: int | None = None
    occupied: int = 0
    uncounted: int = 0
    demand: Demand = field(default_factory=Demand)

    @property
    def held(self) -> int:
        """All that is in use."""
        return self.occupied + self.uncounted


@dataclass(frozen=True)
class PoolSize:
    """``slots`` is what to write now, ``most`` what the pool could ever get, ``why`` what decided."""

    slots: int
    most: int
    why: str


def size_pools(capacity: int, claims: Sequence[Claim]) -> dict[str, PoolSize]:
    """Sizes by pool, in the order given.

    Slots that jobs hold without Airflow's knowledge are taken off: Airflow would start others there.
    """
    members = [
        Member(
            name=claim.pool,
            weight=claim.weight,
            guarantee=claim.guarantee,
            limit=claim.limit,
            occupied=claim.held,
            waiting=claim.demand.waiting,
            first_for=claim.demand.first_for,
        )
        for claim in claims
    ]
    sizes = allocate(capacity, members)
    result = {}
    for claim in claims:
        size = sizes[claim.pool]
        most = capacity if claim.limit is None else min(capacity, claim.limit)
        result[claim.pool] = PoolSize(max(0, size - claim.uncounted), most, _why(claim, size, most))
    return result


def _why(claim: Claim, size: int, most: int) -> str:
    share = f"guarantee {claim.guarantee}, weight {claim.weight:g}"
    if claim.limit is not None:
        share += f", limit {claim.limit}"
    parts = [share]
    waiting = [slots for slots in claim.demand.waiting if slots <= most]
    free = max(0, size - claim.held)
    given = min(free, sum(waiting))
    if waiting:
        parts.append(_waits(waiting, given, claim.demand.first_for))
    too_large = len(claim.demand.waiting) - len(waiting)
    if too_large:
        parts.append(f"{too_large} ask{'s' if too_large == 1 else ''} for more than {most}")
    if free > given:
        parts.append(f"{free - given} of headroom")
    borrowed = min(size, claim.held) + given - claim.guarantee
    if borrowed > 0:
        parts.append(f"{borrowed} borrowed")
    if size < claim.held:
        parts.append(f"drains {claim.held - size}")
    if claim.uncounted:
        parts.append(f"{claim.uncounted} held by jobs whose task is over")
    return "; ".join(parts)


def _waits(waiting: Sequence[int], free: int, first_for: float) -> str:
    slots = sum(waiting)
    text = (
        f"{len(waiting)} wait{'s' if len(waiting) == 1 else ''} for {slots} slot{'' if slots == 1 else 's'}"
    )
    if first_for >= PATIENCE:
        text += f", the first for {format_duration(first_for)}"
    return text + (f", {free} free for that" if free else ", none is free")
