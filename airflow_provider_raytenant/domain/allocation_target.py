"""What every pool should hold in the end: the fair shares, in whole tasks.

First everyone gets the whole tasks that end below the common water level, then what is left goes task by task
to whoever holds least. What a pool already holds counts slot by slot, since any of it may come free. From the
targets follows who lacks slots, and how far others have to drain for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from airflow_provider_raytenant.domain.allocation_tree import Branch, Child, Leaf
from airflow_provider_raytenant.domain.water_level import Part, held_at, level_of

_ROUNDING = 1e-9
"""What a level in floating point may be short of a whole slot."""

_FEW = 8


def set_targets(root: Branch) -> None:
    """Set ``target`` and ``lack`` of every node, with room for the task that slots are kept for."""
    _fill_branch(root, root.limit)
    while root.advance(root.limit):
        pass
    _sum_up(root)


def set_drains(root: Branch) -> None:
    """Set ``drained`` of every pool that holds more than its target: no more than others lack.

    A pool that was granted something does not drain at the same time.
    """
    _reckon_drains(root)
    _drain(root, root.must)


def _fill(child: Child, share: int) -> None:
    """Set the targets of a member that has ``share`` slots coming; most have what they ask for already."""
    slots = min(share, child.demand)
    if isinstance(child, Leaf):
        if child.star or slots < child.held + child.waiting:
            _fill_leaf(child, slots)
    elif child.star or slots < child.whole:
        _fill_branch(child, slots)


def _fill_leaf(leaf: Leaf, slots: int) -> None:
    """What is held, and then the waiting tasks in order, as far as ``slots`` reach."""
    slots -= leaf.star
    if slots <= leaf.held:
        leaf.target = slots if slots > 0 else 0
        return
    leaf.target = leaf.held
    for wanted in leaf.queue:
        if leaf.target + wanted > slots:
            break
        leaf.target += wanted
        leaf.next_wanted += 1


def _fill_branch(branch: Branch, slots: int) -> None:
    """Share ``slots`` out over the members; what would cut a task in two is left over."""
    children = branch.children
    if slots < branch.whole and not branch.star and len(children) <= _FEW and not branch.promises:
        _fill_few(children, slots)
    else:
        shares = [slots] * len(children) if slots >= branch.whole else _shares(branch, slots)
        for child, share in zip(children, shares, strict=True):
            _fill(child, share)
    branch.target = sum([child.target for child in children])


def _fill_few(children: Sequence[Child], slots: float) -> None:
    """The same for a few without claims by guarantee, as most tenants' pools are, in a fraction of the time.

    Whoever asks for less than the same part for all has it, and leaves the rest to the others.
    """
    thirsty = [child for child in children if child.demand]
    weights = sum([child.weight for child in thirsty])
    while thirsty:
        part = slots / weights
        rest = []
        for child in thirsty:
            if child.demand <= part * child.weight:
                _fill(child, child.demand)
                slots -= child.demand
                weights -= child.weight
            else:
                rest.append(child)
        if len(rest) == len(thirsty):
            break
        thirsty = rest
    for child in thirsty:
        _fill(child, int(part * child.weight + _ROUNDING))


def _shares(branch: Branch, slots: int) -> list[int]:
    """Whole slots for each, rounded down, by the water level."""
    if branch.star:
        return _shares_beside_star(branch, slots)
    parts = [Part(0, child.guarantee, child.weight, child.demand) for child in branch.children]
    level = level_of(slots, parts)
    return [math.floor(held_at(level, part) + _ROUNDING) for part in parts]


def _shares_beside_star(branch: Branch, slots: int) -> list[int]:
    """The member with the star gets at least that."""
    parts = [Part(0, child.guarantee, child.weight, child.demand) for child in branch.children]
    level = level_of(slots, parts)
    shares = [math.floor(held_at(level, part) + _ROUNDING) for part in parts]
    place = next(n for n, child in enumerate(branch.children) if child.star)
    if shares[place] < branch.star:
        parts[place] = Part(branch.star, branch.star, 1.0, branch.star)
        level = level_of(slots - branch.star, [*parts[:place], *parts[place + 1 :]])
        shares = [math.floor(held_at(level, part) + _ROUNDING) for part in parts]
    return shares


def _sum_up(branch: Branch) -> None:
    lack = 0
    for child in branch.children:
        if isinstance(child, Leaf):
            short = child.target - child.held
            child.lack = short if short > 0 else 0
        else:
            _sum_up(child)
        lack += child.lack
    branch.lack = lack


def _reckon_drains(branch: Branch) -> None:
    """From below: what may drain (``over``), what is lacking now, and what must drain for it at least."""
    over = lack = must = 0
    for child in branch.children:
        if isinstance(child, Leaf):
            held, target = child.held, child.target
            child.over = held - target if held > target and held == child.occupied else 0
            child.lack = child.star + (target - held if target > held else 0)
            child.must = max(0, min(child.over, held + child.lack - child.limit)) if child.over else 0
        else:
            _reckon_drains(child)
        over += child.over
        lack += child.lack
        must += child.must
    branch.over, branch.lack = over, lack
    branch.must = max(must, min(over, branch.held + lack - branch.limit))


def _drain(child: Child, slots: int) -> None:
    """Share out what drains: what must for the limits below, the rest in proportion to what may."""
    if not slots:
        return
    if isinstance(child, Leaf):
        child.drained = slots
        return
    rest = slots - sum(below.must for below in child.children)
    may = sum(below.over - below.must for below in child.children)
    done = passed = 0
    for below in child.children:
        passed += below.over - below.must
        part = rest * passed // may - done if may else 0
        done += part
        _drain(below, below.must + part)
