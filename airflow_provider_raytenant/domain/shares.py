"""Splitting a group's slots over its tenants: guarantees first, the rest by weight, up to limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Share:
    """What a tenant has coming: ``guarantee`` and ``limit`` in slots (``None``: no limit)."""

    guarantee: int = 0
    weight: float = 1.0
    limit: int | None = None


def split(capacity: int, shares: Mapping[str, Share]) -> dict[str, int]:
    """Whole slots by name, in the order given; their sum never exceeds ``capacity``.

    Every guarantee first (shrunk in proportion where the capacity cannot give them all). What is left
    goes by weight: whoever would get more than its limit is filled up to it, the others share the rest
    in proportion, so that each is less than one slot away from its exact part. The same input gives the
    same split, in whatever order: ties go by name, and fractions are exact.
    """
    wanted = {name: _capped(share.guarantee, share.limit) for name, share in shares.items()}
    promised = sum(wanted.values())
    if promised > capacity:
        return _in_proportion(capacity, wanted)
    sizes = dict(wanted)
    left = capacity - promised
    weights = {name: Fraction(share.weight) for name, share in shares.items()}
    total = sum(weights.values())
    room = {n: share.limit - wanted[n] for n, share in shares.items() if share.limit is not None}
    for name in sorted(room, key=lambda n: room[n] / weights[n]):
        if room[name] * total > left * weights[name]:
            break
        sizes[name] += room[name]
        left -= room[name]
        total -= weights.pop(name)
    if weights:
        for name, extra in _in_proportion(left, weights).items():
            sizes[name] += extra
    return sizes


def make_room(sizes: Mapping[str, int], occupied: Mapping[str, int], capacity: int) -> dict[str, int]:
    """The sizes, less what may not grow yet because tasks of others still hold the slots.

    Nothing is ever killed: a pool that shrinks drains. Until it has, the others grow only as far as the sum
    of ``max(size, occupied)`` stays within ``max(capacity, sum of occupied)``. Who has most room gives way
    first, ties by name.
    """
    held = {name: max(size, occupied.get(name, 0)) for name, size in sizes.items()}
    excess = sum(held.values()) - max(capacity, sum(occupied.get(name, 0) for name in sizes))
    result = dict(sizes)
    by_room = sorted(sizes, key=lambda name: (occupied.get(name, 0) - sizes[name], name))
    for name in by_room:
        room = sizes[name] - occupied.get(name, 0)
        if excess <= 0 or room <= 0:
            break
        cut = min(room, excess)
        result[name] -= cut
        excess -= cut
    return result


def _capped(slots: int, limit: int | None) -> int:
    return slots if limit is None else min(slots, limit)


def _in_proportion(slots: int, weights: Mapping[str, int | Fraction]) -> dict[str, int]:
    """Largest remainders: whole numbers that sum to ``slots``, ties by name."""
    total = sum(weights.values())
    exact = {name: Fraction(slots * weight) / total for name, weight in weights.items()}
    sizes = {name: int(part) for name, part in exact.items()}
    by_remainder = sorted(weights, key=lambda name: (sizes[name] - exact[name], name))
    for name in by_remainder[: slots - sum(sizes.values())]:
        sizes[name] += 1
    return sizes
