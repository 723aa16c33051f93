"""Splitting a group's slots over its tenants: guarantees first, the rest by weight, up to limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """What a tenant has coming: ``guarantee`` and ``limit`` in slots (``None``: no limit)."""

    guarantee: int = 0
    weight: float = 1.0
    limit: int | None = None


def split(capacity: int, shares: Mapping[str, Share]) -> dict[str, int]:
    """Whole slots by name, in the order given; their sum never exceeds ``capacity``.

    Every guarantee first (shrunk in proportion where the capacity cannot give them all), then one
    slot after the other to whoever holds least beyond its guarantee for its weight, until all slots
    are out or every tenant is at its limit. The same input gives the same split: ties go by name.
    """
    wanted = {name: _capped(share.guarantee, share.limit) for name, share in shares.items()}
    promised = sum(wanted.values())
    if promised > capacity:
        return _in_proportion(capacity, wanted)
    sizes = dict(wanted)
    left = capacity - promised
    open_names = [name for name in shares if _capped(sizes[name] + 1, shares[name].limit) > sizes[name]]
    while left and open_names:
        # Whole rounds by weight at once, so that a large group takes no more steps than a small one.
        total_weight = sum(shares[name].weight for name in open_names)
        grants = {name: int(left * shares[name].weight / total_weight) for name in open_names}
        if not any(grants.values()):
            ranked = sorted(open_names, key=lambda n: ((sizes[n] - wanted[n] + 1) / shares[n].weight, n))
            grants = {ranked[0]: 1}
        for name, grant in grants.items():
            taken = _capped(sizes[name] + grant, shares[name].limit) - sizes[name]
            sizes[name] += taken
            left -= taken
        open_names = [
            name for name in open_names if _capped(sizes[name] + 1, shares[name].limit) > sizes[name]
        ]
    return sizes


def _capped(slots: int, limit: int | None) -> int:
    return slots if limit is None else min(slots, limit)


def _in_proportion(capacity: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Largest remainders: whole numbers that sum to ``capacity``, ties by name."""
    total = sum(wanted.values())
    sizes = {name: capacity * want // total for name, want in wanted.items()}
    by_remainder = sorted(wanted, key=lambda name: (-(capacity * wanted[name] % total), name))
    for name in by_remainder[: capacity - sum(sizes.values())]:
        sizes[name] += 1
    return sizes
