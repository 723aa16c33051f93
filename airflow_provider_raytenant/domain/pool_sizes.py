"""The sizes of the pools that share a group's slots, each with the reason in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from airflow_provider_raytenant.domain.allocation import Member, allocate
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.patience import patience_of
from airflow_provider_raytenant.domain.wording import count


@dataclass(frozen=True)
class Claim:
    """What a pool, or a tenant with several pools, has coming, holds and wants; all in slots.

    :param pool: its name; not read where there are ``members``.
    :param guarantee: what it gets before others borrow.
    :param weight: its part of what is beyond guarantees.
    :param limit: ``None`` is no limit.
    :param occupied: what Airflow counts: queued, running and deferred tasks.
    :param uncounted: what live Ray jobs hold beside that: a task that was cleared gives its slots back at
        once, while its job still lives.
    :param about: what it is for, where that is not all of the tenant's tasks.
    :param is_paused: nothing new starts in it.
    :param members: the tenant's pools, the first of which is its main one, where it has more than that.
    """

    pool: str
    guarantee: int = 0
    weight: float = 1.0
    limit: int | None = None
    occupied: int = 0
    uncounted: int = 0
    demand: Demand = field(default_factory=Demand)
    about: str = ""
    is_paused: bool = False
    members: Sequence[Claim] = ()

    @property
    def held(self) -> int:
        """All that is in use."""
        return self.occupied + self.uncounted + sum(own.held for own in self.members)

    @property
    def pools(self) -> Sequence[Claim]:
        """The claims of single pools."""
        return self.members or (self,)


@dataclass(frozen=True)
class PoolSize:
    """What a pool gets.

    :param slots: what to write now.
    :param most: what it could ever get.
    :param why: what decided.
    :param waiting: slots that waiting tasks ask for.
    :param capped: waiting tasks that ask for more than ``most``.
    """

    slots: int
    most: int
    why: str = ""
    waiting: int = 0
    capped: int = 0


def size_pools(capacity: int, claims: Sequence[Claim]) -> dict[str, PoolSize]:
    """Sizes by pool, in the order given.

    Slots that jobs hold without Airflow's knowledge are taken off: Airflow would start others there.
    """
    patience = patience_of(chain.from_iterable(own.demand.held for claim in claims for own in claim.pools))
    sizes = allocate(capacity, [_member(claim) for claim in claims], patience=patience)
    result = {}
    for claim in claims:
        whole = _least(capacity, claim.limit)
        lent = _borrowed(claim, sizes, capacity)
        for own in claim.pools:
            size, most = sizes[own.pool], _least(whole, own.limit)
            parts = [own.about or _share(claim), *_state(own, size, most, patience)]
            if own is claim.pools[0] and lent > 0:
                parts.append(f"{lent} borrowed")
            parts += _end(own, size)
            waiting = own.demand.waiting
            result[own.pool] = PoolSize(
                slots=max(0, size - own.uncounted),
                most=most,
                why="; ".join(parts),
                waiting=sum(waiting),
                capped=sum(slots > most for slots in waiting),
            )
    return result


def _member(claim: Claim) -> Member:
    return Member(
        name=claim.pool,
        weight=claim.weight,
        guarantee=claim.guarantee,
        limit=0 if claim.is_paused else claim.limit,
        occupied=0 if claim.members else claim.held,
        waiting=() if claim.is_paused else claim.demand.waiting,
        first_for=claim.demand.first_for,
        # A slot of headroom starts no large request, and a backfill can wait for the next sync.
        headroom=not claim.about,
        members=[_member(own) for own in claim.members],
    )


def _least(capacity: int, limit: int | None) -> int:
    return capacity if limit is None else min(capacity, limit)


def _share(claim: Claim) -> str:
    share = f"guarantee {claim.guarantee}, weight {claim.weight:g}"
    return share if claim.limit is None else f"{share}, limit {claim.limit}"


def _fitting(claim: Claim, most: int) -> list[int]:
    return [] if claim.is_paused else [slots for slots in claim.demand.waiting if slots <= most]


def _given(claim: Claim, size: int, most: int) -> int:
    """Free slots that waiting tasks may take."""
    return min(max(0, size - claim.held), sum(_fitting(claim, most)))


def _borrowed(claim: Claim, sizes: dict[str, int], capacity: int) -> int:
    """What the tenant has beyond its guarantee, in all of its pools."""
    whole = _least(capacity, claim.limit)
    has = sum(
        min(sizes[own.pool], own.held) + _given(own, sizes[own.pool], _least(whole, own.limit))
        for own in claim.pools
    )
    return has - claim.guarantee


def _state(claim: Claim, size: int, most: int, patience: float) -> Iterator[str]:
    waiting, given = _fitting(claim, most), _given(claim, size, most)
    if waiting:
        yield _waits(waiting, given, claim.demand.first_for, patience)
    too_large = sum(slots > most for slots in claim.demand.waiting)
    if too_large:
        yield f"{too_large} ask{'s' if too_large == 1 else ''} for more than {most}"
    held_back = len(claim.demand.waiting) - too_large
    if claim.is_paused:
        yield "paused" + (f", {held_back} wait{'s' if held_back == 1 else ''}" if held_back else "")
    headroom = size - claim.held - given
    if headroom > 0:
        yield f"{headroom} of headroom"


def _end(claim: Claim, size: int) -> Iterator[str]:
    if size < claim.held:
        yield f"drains {claim.held - size}"
    if claim.uncounted:
        yield f"{claim.uncounted} held by jobs whose task is over"


def _waits(waiting: Sequence[int], free: int, first_for: float, patience: float) -> str:
    slots = sum(waiting)
    text = f"{len(waiting)} wait{'s' if len(waiting) == 1 else ''} for {count(slots, 'slot')}"
    if first_for >= patience:
        text += f", the first for {format_duration(first_for)}"
    return text + (f", {free} free for that" if free else ", none is free")
