"""The ordered rules of the allocation, each on made-up groups of tenants."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.allocation import URGENT, Member, allocate
from airflow_provider_raytenant.domain.patience import LEAST
from tests.domain.allocation_world import after_start, held, occupied, pools_of, tenants

many = settings(derandomize=True, deadline=None, max_examples=250)
some = settings(derandomize=True, deadline=None, max_examples=100)
capacities = st.integers(0, 80)
calm = {"starve": False}
unit = {"starve": False, "largest": 1}


def demand(member: Member, most: float = math.inf) -> int:
    """What a member may come to hold, all limits counted."""
    limit = min(most, math.inf if member.limit is None else member.limit)
    if member.members:
        return int(min(limit, sum(demand(own, limit) for own in member.members)))
    fitting = [slots for slots in member.waiting if slots <= limit]
    return int(min(limit, member.occupied + sum(fitting)))


def room_of(member: Member) -> float:
    return math.inf if member.limit is None else member.limit - occupied(member)


def kept_free(capacity: int, members: Sequence[Member], sizes: dict[str, int]) -> int:
    """Slots that nobody holds and nobody may start on."""
    return capacity - sum(max(sizes[pool.name], pool.occupied) for pool in pools_of(members))


def owed(member: Member, capacity: int) -> int:
    """Slots of waiting tasks that are wholly within the guarantee."""
    return _within(member, min(member.guarantee, capacity) - occupied(member), capacity)


def _within(member: Member, space: float, capacity: float) -> int:
    space = left = max(0, min(space, room_of(member)))
    for own in member.members:
        left -= _within(own, left, capacity)
    most = capacity if member.limit is None else min(member.limit, capacity)
    for slots in member.waiting:
        left -= slots if slots <= min(left, most) else 0
    return int(space - left)


def promise(member: Member, capacity: int) -> int:
    limit = capacity if member.limit is None else min(member.limit, capacity)
    return min(member.guarantee, occupied(member), limit) + owed(member, capacity)


# -- 1, safe ----------------------------------------------------------------------------------------


@many
@given(capacities, tenants())
def test_sizes_and_what_is_held_stay_within_the_capacity(capacity: int, members: list[Member]) -> None:
    sizes = allocate(capacity, members)
    assert list(sizes) == [pool.name for pool in pools_of(members)]
    assert min(sizes.values()) >= 0
    total = sum(map(occupied, members))
    assert sum(max(sizes[pool.name], pool.occupied) for pool in pools_of(members)) <= max(capacity, total)


@many
@given(capacities, tenants())
def test_what_is_above_the_capacity_drains(capacity: int, members: list[Member]) -> None:
    assert sum(allocate(capacity, members).values()) <= capacity


# -- 2, limit ---------------------------------------------------------------------------------------


@many
@given(capacities, tenants())
def test_no_size_is_above_a_limit(capacity: int, members: list[Member]) -> None:
    sizes = allocate(capacity, members)
    for member in [*members, *pools_of(members)]:
        if member.limit is not None:
            own = list(pools_of([member]))
            assert sum(sizes[pool.name] for pool in own) <= member.limit
            most = sum(max(sizes[pool.name], pool.occupied) for pool in own)
            assert most <= max(member.limit, occupied(member))


# -- 3, guarantee -----------------------------------------------------------------------------------


@many
@given(capacities, tenants())
def test_nobody_borrows_what_a_guarantee_still_needs(capacity: int, members: list[Member]) -> None:
    sizes = allocate(capacity, members)
    after = after_start(members, sizes)
    unserved = sum(owed(member, capacity) for member in after)
    borrowed = [
        occupied(now) > max(occupied(before), before.guarantee)
        for before, now in zip(members, after, strict=True)
    ]
    if any(borrowed):
        assert kept_free(capacity, members, sizes) >= unserved


@many
@given(capacities, tenants(**unit))
def test_free_slots_serve_guarantees_first(capacity: int, members: list[Member]) -> None:
    before = sum(owed(member, capacity) for member in members)
    free = max(0, capacity - sum(map(occupied, members)))
    after = after_start(members, allocate(capacity, members))
    assert before - sum(owed(member, capacity) for member in after) == min(free, before)


@many
@given(capacities, tenants(nested=False, **unit))
def test_borrowers_drain_for_guarantees(capacity: int, members: list[Member]) -> None:
    promised = [promise(member, capacity) for member in members]
    assume(sum(promised) <= capacity)
    sizes = allocate(capacity, members)
    after = after_start(members, sizes)
    unserved = sum(owed(member, capacity) for member in after)
    assert sum(min(sizes[m.name], m.occupied) for m in after) <= capacity - unserved
    for member, part in zip(after, promised, strict=True):
        assert sizes[member.name] >= min(member.occupied, part)


# -- 4, reservation ---------------------------------------------------------------------------------


def starving(capacity: int, members: list[Member]) -> Member | None:
    """The pool whose first task starved longest and could run beside what is promised to others."""
    found: list[Member] = []
    for member in members:
        limit = min(capacity, capacity if member.limit is None else member.limit)
        others = sum(promise(m, capacity) for m in members if m is not member)
        for pool in pools_of([member]):
            most = limit if pool.limit is None else min(limit, pool.limit)
            fitting = [slots for slots in pool.waiting if slots <= most]
            siblings = sum(
                min(own.guarantee, demand(own, limit)) for own in member.members if own is not pool
            )
            fits = fitting and fitting[0] <= min(limit - siblings, capacity - others)
            if fits and pool.first_for >= LEAST:
                found.append(replace(pool, waiting=fitting))
    return max(found, key=lambda pool: pool.first_for, default=None)


@many
@given(capacities, tenants(largest=30))
def test_slots_are_kept_for_the_task_that_starved_longest(capacity: int, members: list[Member]) -> None:
    pool = starving(capacity, members)
    assume(pool is not None and pool.first_for > 60)
    assert pool is not None
    sizes = allocate(capacity, members)
    after = after_start(members, sizes)
    if held(after)[pool.name] >= pool.occupied + pool.waiting[0]:
        return
    # It waits on, and the others make room for it; at last nobody may grow beyond a guarantee.
    grown = sum(
        max(0, occupied(now) - max(occupied(was), was.guarantee))
        for was, now in zip(members, after, strict=True)
    )
    limited = any(m.limit is not None for m in [*members, *pools_of(members)])
    assert limited or not grown or pool.first_for < URGENT * LEAST
    assert sum(sizes.values()) <= capacity - (0 if limited else pool.waiting[0])


@some
@given(
    st.integers(8, 40),
    tenants(most=5, largest=2, plain=True, busy=False, starve=False),
    st.integers(0, 4),
    st.booleans(),
    st.data(),
)
def test_a_large_task_starts_under_a_stream_of_small_ones(
    capacity: int, members: list[Member], owner: int, same_pool: bool, data: st.DataObject
) -> None:
    """Small tasks wait everywhere at all times: in the tenant's other pool, or behind it in its own."""
    large = data.draw(st.integers(3, capacity))
    small = data.draw(st.sampled_from([[1], [1, 2], [2]])) * 20
    other = [] if same_pool else [Member("small", 2.0)]
    members[owner % len(members)] = Member("big", members=[*other, Member("large")])
    behind = small if same_pool else []
    running: deque[tuple[str, int]] = deque()
    for seconds in range(0, 1000, 5):
        first_for = {"large": float(seconds)}
        waiting = {pool.name: small for pool in pools_of(members)} | {"large": [large, *behind]}
        full = [_with(member, waiting, first_for) for member in members]
        members = after_start(full, allocate(capacity, full))
        if next(pool for pool in pools_of(members) if pool.name == "large").first_for < seconds:
            return
        running += (held(members) - held(full)).items()
        for _ in range(max(1, len(running) // 4)):
            name, slots = running.popleft()
            members = [_less(member, name, slots) for member in members]
    raise AssertionError(f"{large} slots of {capacity} never came free")


def _with(member: Member, waiting: dict[str, list[int]], first_for: dict[str, float]) -> Member:
    if member.members:
        return replace(member, members=[_with(own, waiting, first_for) for own in member.members])
    return replace(member, waiting=waiting[member.name], first_for=first_for.get(member.name, 0.0))


def _less(member: Member, name: str, slots: int) -> Member:
    if member.members:
        return replace(member, members=[_less(own, name, slots) for own in member.members])
    return replace(member, occupied=member.occupied - slots) if member.name == name else member


# -- 5, work-conserving -----------------------------------------------------------------------------


def could_still_start(capacity: int, after: list[Member]) -> list[int]:
    """Waiting tasks that limits, guarantees of others and the free slots would allow."""
    free = capacity - sum(map(occupied, after))
    fitting = []
    for member in after:
        others = sum(owed(other, capacity) for other in after if other is not member)
        for pool in pools_of([member]):
            siblings = sum(owed(own, capacity) for own in member.members if own is not pool)
            room = max(min(free, owed(member, capacity)), free - others)
            room = min(room, room_of(member))
            room = max(min(room, owed(pool, capacity)), room - siblings)
            fitting += [s for s in pool.waiting if s <= min(room, room_of(pool))]
    return fitting


@many
@given(capacities, tenants(**unit))
def test_no_slot_idles_while_a_task_of_one_waits(capacity: int, members: list[Member]) -> None:
    assert not could_still_start(capacity, after_start(members, allocate(capacity, members)))


@many
@given(capacities, tenants(**calm))
def test_a_slot_idles_for_a_larger_task_only(capacity: int, members: list[Member]) -> None:
    after = after_start(members, allocate(capacity, members))
    idle = could_still_start(capacity, after)
    if idle:
        # One larger task, in its turn, has slots kept for it.
        assert max(s for pool in pools_of(after) for s in pool.waiting if s <= capacity) > min(idle)
        assert len(idle) < sum(len(pool.waiting) for pool in pools_of(after))


# -- 6, fair ----------------------------------------------------------------------------------------


def fair(capacity: int, members: Sequence[Member]) -> list[float]:
    """Max-min with slots that can be cut, by halving."""
    low, high = -1.0, 200.0
    for _ in range(60):
        level = (low + high) / 2
        shares = [_at(level, member, capacity) for member in members]
        low, high = (level, high) if sum(shares) <= capacity else (low, level)
    return shares


def _at(level: float, member: Member, capacity: int) -> float:
    promised = member.guarantee if member.limit is None else min(member.guarantee, member.limit)
    share = promised * (1 + min(level, 0)) + member.weight * max(level, 0)
    return min(demand(member, capacity), share)


@many
@given(capacities, tenants(busy=False, **unit))
def test_nobody_is_a_whole_slot_away_from_its_share(capacity: int, members: list[Member]) -> None:
    after = after_start(members, allocate(capacity, members))
    for share, now in zip(fair(capacity, members), after, strict=True):
        assert math.floor(share + 1e-6) <= occupied(now) <= math.ceil(share - 1e-6)
    for member, now in zip(members, after, strict=True):
        # A tenant's pools share what it got, which may be one slot more than its share.
        least = fair(max(0, occupied(now) - 1), member.members)
        most = fair(occupied(now), member.members)
        for low, high, own in zip(least, most, now.members, strict=True):
            assert math.floor(low + 1e-6) <= occupied(own) <= math.ceil(high - 1e-6)


def whole_tasks(waiting: Sequence[int], share: float) -> float:
    ends = [0.0, *itertools.accumulate(waiting)]
    return max(end for end in ends if end <= max(0, share - 1e-6))


@many
@given(capacities, tenants(nested=False, busy=False, plain=True, starve=False))
def test_everyone_gets_the_whole_tasks_within_its_share(capacity: int, members: list[Member]) -> None:
    after = after_start(members, allocate(capacity, members))
    for member, share, now in zip(members, fair(capacity, members), after, strict=True):
        fitting = [slots for slots in member.waiting if slots <= capacity]
        assert now.occupied >= whole_tasks(fitting, share)


@many
@given(capacities, tenants(nested=False, **calm))
def test_nobody_drains_below_its_share(capacity: int, members: list[Member]) -> None:
    sizes = allocate(capacity, members)
    for member, share in zip(members, fair(capacity, members), strict=True):
        assert sizes[member.name] >= min(member.occupied, math.floor(share + 1e-6))


@many
@given(capacities, tenants(**calm))
def test_only_what_others_lack_drains(capacity: int, members: list[Member]) -> None:
    assume(all(room_of(m) >= 0 for m in [*members, *pools_of(members)]))
    capacity += max(0, sum(map(occupied, members)) - capacity)
    sizes = allocate(capacity, members)
    after = after_start(members, sizes)
    drained = sum(max(0, pool.occupied - sizes[pool.name]) for pool in pools_of(members))
    assert drained <= sum(s for pool in pools_of(after) for s in pool.waiting)


# -- 7, headroom ------------------------------------------------------------------------------------


@many
@given(capacities, tenants(largest=1, **calm))
def test_every_slot_is_somewhere(capacity: int, members: list[Member]) -> None:
    """With no task waiting, every slot is in a pool, as far as limits allow."""
    members = [_idle(member) for member in members]
    capacity += sum(map(occupied, members))
    most = sum(_most(member) for member in members)
    assume(all(room_of(m) >= 0 for m in [*members, *pools_of(members)]))
    assert sum(allocate(capacity, members).values()) == min(capacity, most)


def _idle(member: Member) -> Member:
    return replace(member, waiting=(), members=[_idle(own) for own in member.members])


def _most(member: Member) -> float:
    limit = math.inf if member.limit is None else member.limit
    return min(limit, sum(_most(own) for own in member.members)) if member.members else limit


@many
@given(capacities, st.integers(1, 9), st.integers(0, 5))
def test_idle_pools_share_alike(capacity: int, count: int, waiting: int) -> None:
    members = [Member("busy", waiting=[1] * waiting), *(Member(f"t{n}") for n in range(count))]
    sizes = allocate(capacity, members)
    idle = [sizes[f"t{n}"] for n in range(count)]
    assert max(idle) - min(idle) <= 1
    assert sum(sizes.values()) == capacity
    if capacity - waiting > count:
        assert min(idle) > 0


# -- 8, stable --------------------------------------------------------------------------------------


@many
@given(capacities, tenants(largest=20))
def test_the_same_again_changes_nothing(capacity: int, members: list[Member]) -> None:
    sizes = allocate(capacity, members)
    assert allocate(capacity, members) == sizes
    after = after_start(members, sizes)
    again = allocate(capacity, after)
    settled = after_start(after, again)
    assert held(settled) == held(after)
    assert allocate(capacity, settled) == again


@many
@given(st.integers(1, 60), st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=8), st.data())
def test_fair_shares_do_not_swing(capacity: int, weights: list[float], data: st.DataObject) -> None:
    """Everyone has endless work: once the shares are fair, no end of a task moves a slot."""
    members = [Member(f"t{n}", weight, waiting=[1] * 100) for n, weight in enumerate(weights)]
    sizes = allocate(capacity, members)
    members = [replace(m, occupied=sizes[m.name]) for m in members]
    assert allocate(capacity, members) == sizes
    place = data.draw(st.integers(0, len(members) - 1))
    one_less = max(0, members[place].occupied - 1)
    members[place] = replace(members[place], occupied=one_less)
    assert allocate(capacity, members) == sizes
