"""Weighted max-min by a water level: who holds least for its weight is next, guarantees before all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Part(NamedTuple):
    """One who shares: it gets at least ``low`` and at most ``high`` (``inf`` is no end), all in slots."""

    low: float
    guarantee: float
    weight: float
    high: float


def key(held: float, guarantee: float, weight: float) -> float:
    """How well someone who holds ``held`` is served; the lowest has the next turn.

    From -1 (nothing) to 0 (all of its guarantee), in proportion to the guarantee; from there on the slots
    beyond the guarantee for one of weight. So no one borrows before all guarantees are filled.
    """
    if held < guarantee:
        return held / guarantee - 1
    return (held - guarantee) / weight


def held_at(level: float, part: Part) -> float:
    """What the part holds when its key has come up to ``level``: the other way round than :func:`key`."""
    wanted = part.guarantee * (1 + level) if level < 0 else part.guarantee + part.weight * level
    return min(max(wanted, part.low), part.high)


def level_of(amount: float, parts: Sequence[Part]) -> float:
    """The level at which the parts hold ``amount`` slots together; ``O(n log n)``.

    -1 where the lows alone are that much, and a level at which everyone has all it may where the amount is
    more than the highs.
    """
    if amount <= sum(part.low for part in parts):
        return -1.0
    total = sum(min(max(part.guarantee, part.low), part.high) for part in parts)
    if amount < total:
        return _climb(amount, sum(part.low for part in parts), -1.0, _guaranteed(parts))
    return _climb(amount, total, 0.0, _borrowed(parts))


Slope = tuple[float, float, float]
"""From which level to which someone's part grows, and by how many slots for one of level."""


def _guaranteed(parts: Sequence[Part]) -> list[Slope]:
    return [
        (low / guarantee - 1, min(guarantee, high) / guarantee - 1, guarantee)
        for low, guarantee, _, high in parts
        if low < guarantee and low < high
    ]


def _borrowed(parts: Sequence[Part]) -> list[Slope]:
    return [
        (max(low - guarantee, 0.0) / weight, (high - guarantee) / weight, weight)
        for low, guarantee, weight, high in parts
        if high > guarantee and high > low
    ]


def _climb(amount: float, total: float, level: float, slopes: list[Slope]) -> float:
    """The level that ``amount`` is reached at, from ``level`` where ``total`` is reached."""
    changes = [(start, 1, slope) for start, _, slope in slopes]
    changes += [(end, -1, -slope) for _, end, slope in slopes if end < math.inf]
    changes.sort()
    growing, slope = 0, 0.0
    for at, count, change in changes:
        if growing:
            reached = total + slope * (at - level)
            if reached >= amount:
                return level + (amount - total) / slope
            total = reached
        level = at
        growing += count
        slope = slope + change if growing else 0.0
    return level + (amount - total) / slope if growing else level
