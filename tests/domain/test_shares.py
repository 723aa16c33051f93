from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.shares import Share, make_room, split
from tests.domain.helpers import seeded

Shares = dict[str, Share]


@st.composite
def _share(draw: st.DrawFn) -> Share:
    limit = draw(st.none() | st.integers(0, 60))
    guarantee = draw(st.integers(0, 20 if limit is None else min(20, limit)))
    return Share(guarantee, draw(st.sampled_from([0.1, 0.3, 1.0, 2.0, 7.0, 50.0])), limit)


_shares = st.lists(_share(), max_size=8).map(
    lambda shares: {f"t{n}": share for n, share in enumerate(shares)}
)


@pytest.mark.parametrize(
    ("capacity", "shares", "sizes"),
    [
        (10, {}, {}),
        (0, {"a": Share(), "b": Share(3)}, {"a": 0, "b": 0}),
        (10, {"a": Share(), "b": Share()}, {"a": 5, "b": 5}),
        (11, {"b": Share(), "a": Share()}, {"b": 5, "a": 6}),
        (12, {"a": Share(0, 2), "b": Share()}, {"a": 8, "b": 4}),
        # The guarantee comes first, the weight shares what is left.
        (30, {"a": Share(20), "b": Share()}, {"a": 25, "b": 5}),
        (64, {"acme": Share(16, 2, 128), "globex": Share(8)}, {"acme": 43, "globex": 21}),
        # A limit leaves its rest to the others.
        (30, {"a": Share(0, 1, 4), "b": Share(), "c": Share()}, {"a": 4, "b": 13, "c": 13}),
        (30, {"a": Share(0, 1, 4), "b": Share(0, 1, 5)}, {"a": 4, "b": 5}),
        (30, {"a": Share(limit=0), "b": Share()}, {"a": 0, "b": 30}),
        # A limit that binds only once another one has bound.
        (30, {"a": Share(0, 1, 2), "b": Share(0, 1, 12), "c": Share()}, {"a": 2, "b": 12, "c": 16}),
        # Guarantees that do not fit shrink in proportion, whatever the weights.
        (10, {"a": Share(20, 9), "b": Share(10), "c": Share()}, {"a": 7, "b": 3, "c": 0}),
        (1, {"b": Share(1), "a": Share(1)}, {"b": 0, "a": 1}),
        # A guarantee above the limit counts as the limit.
        (10, {"a": Share(8, 1, 3), "b": Share()}, {"a": 3, "b": 7}),
        # A heavy tenant takes its part, not all that does not come to a whole slot for the light ones.
        (
            4,
            {"a": Share(0, 4), "b": Share(), "c": Share(), "d": Share(), "e": Share()},
            {"a": 2, "b": 1, "c": 1, "d": 0, "e": 0},
        ),
    ],
)
def test_a_group_is_split(capacity: int, shares: Shares, sizes: dict[str, int]) -> None:
    result = split(capacity, shares)
    assert result == sizes
    assert list(result) == list(shares)


@seeded
@given(st.integers(0, 200), _shares)
@example(7, {"t0": Share(0, 0.1), "t1": Share(0, 0.3), "t2": Share(0, 0.3)})
def test_every_slot_goes_out_unless_everyone_is_at_the_limit(capacity: int, shares: Shares) -> None:
    sizes = split(capacity, shares)
    limits = [math.inf if share.limit is None else share.limit for share in shares.values()]
    assert all(0 <= size <= limit for size, limit in zip(sizes.values(), limits, strict=True))
    assert sum(sizes.values()) == min(capacity, sum(limits))


@seeded
@given(st.integers(0, 200), _shares)
def test_guarantees_are_kept_when_they_fit(capacity: int, shares: Shares) -> None:
    sizes = split(capacity, shares)
    promised = sum(share.guarantee for share in shares.values())
    for name, share in shares.items():
        if promised <= capacity:
            assert sizes[name] >= share.guarantee
        else:
            assert abs(sizes[name] - capacity * share.guarantee / promised) < 1


@seeded
@given(st.integers(0, 200), _shares, st.randoms(use_true_random=False))
def test_the_order_of_the_file_changes_nothing(capacity: int, shares: Shares, random: object) -> None:
    names = list(shares)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert split(capacity, {name: shares[name] for name in names}) == split(capacity, shares)


@seeded
@given(st.integers(0, 300), _shares.filter(bool))
def test_without_limits_everyone_is_less_than_a_slot_from_its_weights_part(
    capacity: int, shares: Shares
) -> None:
    free = {name: Share(share.guarantee, share.weight) for name, share in shares.items()}
    left = capacity - sum(share.guarantee for share in free.values())
    weights = {name: Fraction(share.weight) for name, share in free.items()}
    for name, size in split(capacity, free).items() if left >= 0 else ():
        part = left * weights[name] / sum(weights.values())
        assert abs(size - free[name].guarantee - part) < 1


@seeded
@given(st.integers(0, 200), _shares)
def test_whoever_is_below_its_limit_holds_no_less_for_its_weight_than_others(
    capacity: int, shares: Shares
) -> None:
    sizes = split(capacity, shares)
    if sum(share.guarantee for share in shares.values()) > capacity:
        return
    extra = {name: sizes[name] - share.guarantee for name, share in shares.items()}
    for name, share in shares.items():
        if share.limit is None or sizes[name] < share.limit:
            for other in shares:
                assert (extra[name] + 1) / share.weight > (extra[other] - 1) / shares[other].weight


@pytest.mark.parametrize("limit", [None, 900])
@pytest.mark.parametrize("capacity", [999, 999_999, 10**6])
def test_a_million_slots_and_a_thousand_tenants_are_split_in_no_time(
    capacity: int, limit: int | None
) -> None:
    shares = {f"t{n}": Share(n % 2, 1 + n % 7, None if limit is None else limit + n) for n in range(1000)}
    began = time.monotonic()
    sizes = split(capacity, shares)
    assert time.monotonic() - began < 2
    assert sum(sizes.values()) == capacity


@pytest.mark.parametrize(
    ("sizes", "occupied", "capacity", "expected"),
    [
        # Nobody holds anything: everyone gets what is due.
        ({"a": 6, "b": 6}, {}, 12, {"a": 6, "b": 6}),
        # a drains from 12 to 6: until it has, b gets nothing.
        ({"a": 6, "b": 6}, {"a": 12}, 12, {"a": 6, "b": 0}),
        ({"a": 6, "b": 6}, {"a": 9}, 12, {"a": 6, "b": 3}),
        # Who has most room gives way first.
        ({"a": 4, "b": 6, "c": 2}, {"a": 8}, 12, {"a": 4, "b": 2, "c": 2}),
        # More is held than there is: nobody grows.
        ({"a": 4, "b": 4}, {"a": 9, "b": 3}, 8, {"a": 4, "b": 3}),
    ],
)
def test_a_pool_grows_only_as_far_as_others_have_drained(
    sizes: dict[str, int], occupied: dict[str, int], capacity: int, expected: dict[str, int]
) -> None:
    assert make_room(sizes, occupied, capacity) == expected


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1),
    st.integers(0, 100),
)
def test_what_is_held_and_what_may_be_held_stays_within_the_capacity(
    members: dict[str, tuple[int, int]], capacity: int
) -> None:
    occupied = {name: held for name, (_, held) in members.items()}
    sizes = split(capacity, {name: Share(limit=size) for name, (size, _) in members.items()})
    room = make_room(sizes, occupied, capacity)
    total = sum(max(room[name], occupied[name]) for name in room)
    assert total <= max(capacity, sum(occupied.values()))
    assert all(room[name] <= sizes[name] for name in room)
    assert all(room[name] == sizes[name] for name in room if sizes[name] <= occupied[name])
