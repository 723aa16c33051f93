"""Slots that no waiting task can use, spread over idle pools so that a first task starts at once."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from airflow_provider_raytenant.domain.allocation_tree import Branch, Child, Leaf
from airflow_provider_raytenant.domain.water_level import Part, held_at, key, level_of

_ROUNDING = 1e-9


def spread(root: Branch, slots: int) -> None:
    """Set ``headroom`` of idle pools, up to limits, as if each had endless work of single slots.

    So who holds little gets more than who holds much, and a pool gets its guarantee before others borrow.
    A pool with a waiting task is not idle, nor is one that drains.
    """
    if slots > 0:
        _look_for_room(root)
        _spread(root, min(slots, root.headroom))


def _look_for_room(branch: Branch) -> None:
    """Set ``headroom`` to what idle pools may get at most."""
    total = 0
    for child in branch.children:
        if isinstance(child, Branch):
            _look_for_room(child)
        else:
            room = child.limit - child.held
            is_idle = child.takes_headroom and not child.waiting and not child.drained
            child.headroom = room if is_idle and room > 0 else 0
        total += child.headroom
    branch.headroom = max(0, min(branch.room, total))
    if total and not branch.headroom:
        _spread(branch, 0)


def _spread(branch: Branch, slots: int) -> None:
    idle = [child for child in branch.children if child.headroom]
    given = [0] * len(idle)
    if slots > 2 * len(idle):
        parts = [Part(c.held, c.guarantee, c.weight, c.held + c.headroom) for c in idle]
        level = level_of(slots + sum([child.held for child in idle]), parts)
        given = [int(held_at(level, part) - part.low + _ROUNDING) for part in parts]
    _one_by_one(idle, given, slots - sum(given))
    for child, part in zip(idle, given, strict=True):
        if isinstance(child, Leaf):
            child.headroom = part
        else:
            _spread(child, part)


def _one_by_one(idle: Sequence[Child], given: list[int], left: int) -> None:
    """Add ``left`` single slots to what is given, each to whoever has the lowest key."""
    if not left:
        return
    turns = [(_key(child, part), place) for place, (child, part) in enumerate(zip(idle, given, strict=True))]
    heapq.heapify(turns)
    while left and turns:
        place = turns[0][1]
        child = idle[place]
        if given[place] < child.headroom:
            given[place] += 1
            left -= 1
            heapq.heapreplace(turns, (_key(child, given[place]), place))
        else:
            heapq.heappop(turns)


def _key(child: Child, more: int) -> float:
    return key(child.held + more, child.guarantee, child.weight)
