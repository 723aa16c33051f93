"""A listing is made where it is the cheaper one, and where it is time to know better."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.ray_api.reading_cost import (
    LISTING_MS,
    RECORD_MS,
    REFRESH_AFTER,
    SINGLE_MS,
    ReadingCost,
)


def known(records: int) -> ReadingCost:
    cost = ReadingCost()
    cost.listed(records)
    return cost


@given(st.integers(0, 5000), st.integers(0, 100_000))
def test_the_cheaper_one_is_chosen(looks: int, records: int) -> None:
    listing = LISTING_MS + RECORD_MS * records
    assert known(records).prefers_listing(looks) == (listing < looks * SINGLE_MS)


def test_some_choices() -> None:
    assert not known(0).prefers_listing(1)
    assert known(3).prefers_listing(2)
    assert known(1000).prefers_listing(1000)
    assert not known(10_000).prefers_listing(1000)


@pytest.mark.parametrize(("looks", "rounds"), [(100, 0), (12, 0), (10, 2), (3, 4), (2, 6)])
def test_how_many_records_there_are_is_found_out(looks: int, rounds: int) -> None:
    cost, singles = ReadingCost(), 0
    while not cost.prefers_listing(looks):
        cost.read(looks)
        singles += 1

    assert singles == rounds


@given(st.integers(2, 500), st.integers(0, 20_000))
def test_finding_out_anew_costs_a_tenth_at_most(looks: int, records: int) -> None:
    """Nothing ever changes here, so all these listings are for nothing."""
    cost, singles, listings = known(records), 0.0, 0.0
    for _ in range(20_000 // looks):
        if cost.prefers_listing(looks):
            cost.listed(records)
            listings += LISTING_MS + RECORD_MS * records
        else:
            cost.read(looks)
            singles += looks * SINGLE_MS

    assert listings <= singles / REFRESH_AFTER or known(records).prefers_listing(looks)


def test_records_that_were_removed_are_noticed() -> None:
    cost, rounds = known(10_000), 0
    while not cost.prefers_listing(100):
        cost.read(100)
        rounds += 1
        assert rounds < 200
    cost.listed(120)

    assert cost.prefers_listing(100)


def test_a_lonely_task_never_lists() -> None:
    cost = known(1)
    for _ in range(10_000):
        cost.read(1)

    assert not cost.prefers_listing(1)
    assert not cost.prefers_listing(2) or known(1).prefers_listing(2)
