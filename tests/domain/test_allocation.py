from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.domain.allocation import Member, allocate
from airflow_provider_raytenant.domain.patience import LEAST

LONG = LEAST + 1


def test_nobody_there() -> None:
    assert allocate(10, []) == {}


@pytest.mark.parametrize(
    ("capacity", "members", "sizes"),
    [
        # Idle pools share what there is, by weight, with the guarantee first.
        (10, [Member("a"), Member("b")], {"a": 5, "b": 5}),
        (12, [Member("a", 2), Member("b")], {"a": 8, "b": 4}),
        (30, [Member("a", guarantee=20), Member("b")], {"a": 25, "b": 5}),
        (30, [Member("a", limit=4), Member("b")], {"a": 4, "b": 26}),
        (0, [Member("a", guarantee=3, waiting=[1])], {"a": 0}),
        # Demand decides, not the number of tenants.
        (10, [Member("a", waiting=[1] * 20), Member("b", waiting=[2, 2])], {"a": 6, "b": 4}),
        (10, [Member("a", waiting=[1] * 3), Member("b")], {"a": 5, "b": 5}),
        # A full cluster: the one drains what the other lacks, and no more.
        (10, [Member("a", occupied=10, waiting=[1] * 9), Member("b", waiting=[2])], {"a": 8, "b": 0}),
        (10, [Member("a", occupied=10, waiting=[1] * 9), Member("b", waiting=[2] * 9)], {"a": 6, "b": 0}),
        (10, [Member("a", occupied=8, waiting=[1] * 9), Member("b", waiting=[2] * 9)], {"a": 6, "b": 2}),
        (10, [Member("a", occupied=10), Member("b")], {"a": 10, "b": 0}),
        # A cluster that lost nodes: nothing is killed, but nothing starts until enough has ended.
        (6, [Member("a", occupied=6, waiting=[1]), Member("b", occupied=6)], {"a": 3, "b": 3}),
        # A limit that was lowered below what is held, of a pool and of a tenant.
        (10, [Member("a", limit=2, occupied=5, waiting=[1])], {"a": 2}),
        (
            10,
            [Member("a", limit=4, members=[Member("m", occupied=4), Member("l", occupied=4)])],
            {"m": 2, "l": 2},
        ),
        # A tenant's pools share what the tenant gets: three waiting pools are no more than one.
        (
            12,
            [Member("a", members=[Member(n, waiting=[1] * 9) for n in "xyz"]), Member("b", waiting=[1] * 9)],
            {"x": 2, "y": 2, "z": 2, "b": 6},
        ),
        # A task that fits no limit asks for nothing.
        (10, [Member("a", limit=4, waiting=[5]), Member("b", waiting=[1] * 10)], {"a": 0, "b": 10}),
        # A guarantee before those who hold less for their weight.
        (
            4,
            [Member("a", guarantee=4, occupied=2, waiting=[1, 1]), Member("b", waiting=[1] * 4)],
            {"a": 4, "b": 0},
        ),
    ],
)
def test_sizes(capacity: int, members: list[Member], sizes: dict[str, int]) -> None:
    assert allocate(capacity, members) == sizes


def test_a_starving_task_has_slots_kept() -> None:
    small = Member("small", occupied=60, waiting=[1] * 9)
    # 32 are more than the half that either has coming: not before it starves.
    large = Member("large", waiting=[40])
    assert allocate(64, [small, large]) == {"small": 64, "large": 0}
    large = Member("large", waiting=[40], first_for=LONG)
    assert allocate(64, [small, large]) == {"small": 24, "large": 0}
    small = Member("small", occupied=24, waiting=[1] * 9)
    assert allocate(64, [small, large]) == {"small": 24, "large": 40}


def test_slots_are_kept_within_the_tenant_first() -> None:
    """The tenant's own small tasks make room for its large one; the other tenant has its share anyway."""
    own = [Member("a.main", occupied=10, waiting=[1] * 9), Member("a.large", waiting=[10], first_for=LONG)]
    sizes = allocate(20, [Member("a", members=own), Member("b", occupied=10, waiting=[1] * 9)])
    assert sizes == {"a.main": 0, "a.large": 0, "b": 10}


def test_a_task_that_ends_beyond_the_guarantee_has_no_claim_by_it() -> None:
    """However little is held yet: 26 of 27 slots would be borrowed before one who starves has its one."""
    starves = Member("starves", waiting=[1], first_for=LONG)
    promised = Member("promised", guarantee=4, waiting=[1, 26])
    sizes = allocate(27, [starves, promised])
    assert sizes["promised"] == 1
    assert sizes["starves"] >= 1


def test_a_task_in_its_turn_has_slots_kept() -> None:
    """Slots that drained for a task of the one who holds least are not given away again piece by piece."""
    rich, poor = Member("rich", occupied=16, waiting=[1] * 9), Member("poor", waiting=[4])
    assert allocate(18, [rich, poor]) == {"rich": 14, "poor": 0}
    rich = Member("rich", occupied=14, waiting=[1] * 9)
    assert allocate(18, [rich, poor]) == {"rich": 14, "poor": 4}


def test_the_one_that_starved_longest_comes_first() -> None:
    members = [Member(f"t{n}", waiting=[6], first_for=LONG + n) for n in range(3)]
    assert allocate(10, members) == {"t0": 0, "t1": 0, "t2": 6}


def test_a_short_patience_keeps_slots_sooner() -> None:
    members = [Member("a", occupied=10, waiting=[1] * 9), Member("b", waiting=[8], first_for=5.0)]
    assert allocate(10, members)["a"] == 10
    assert allocate(10, members, patience=5.0)["a"] == 2


@pytest.mark.parametrize(
    ("capacity", "values", "message"),
    [
        (-1, {}, "capacity: found -1; allowed: at least 0"),
        (1, {"weight": 0.0}, "weight of a: found 0.0; allowed: above 0"),
        (1, {"weight": float("nan")}, "weight of a: found nan; allowed: above 0"),
        (1, {"occupied": -1}, "a: found guarantee 0, limit None, occupied -1; allowed: at least 0"),
        (1, {"limit": -1}, "a: found guarantee 0, limit -1, occupied 0; allowed: at least 0"),
        (1, {"waiting": [1, 0]}, "waiting of a: found 0 slots; allowed: at least 1"),
        (1, {"members": [Member("b"), Member("b")]}, "name: found b twice; allowed: one pool of a name"),
    ],
)
def test_what_cannot_be_is_refused(capacity: int, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.") + "$"):
        allocate(capacity, [Member("a", **values)])
