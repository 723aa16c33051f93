from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from carrier_delays import split_by_carrier, statistics

from stack.flights import daily_statistics, flights

NEW_YEAR = date(2013, 1, 1)
BLIZZARD = date(2013, 2, 8)  # 472 flights cancelled, the most of the year
SHORT_OF_ARRIVALS = date(2013, 2, 9)


def csv_of(day: date) -> bytes:
    table = flights()
    text: str = table[(table["month"] == day.month) & (table["day"] == day.day)].to_csv(index=False)
    return text.encode()


def computed(day: date) -> dict[str, Any]:
    return {carrier: statistics(part) for carrier, part in split_by_carrier(csv_of(day)).items()}


@pytest.mark.parametrize(
    "day", [NEW_YEAR, BLIZZARD, SHORT_OF_ARRIVALS, date(2013, 7, 10), date(2013, 12, 31)]
)
def test_the_job_finds_what_pandas_finds_over_the_whole_table(day: date) -> None:
    found, expected = computed(day), daily_statistics(day)
    assert list(found) == sorted(expected)
    for carrier, numbers in expected.items():
        for kind in ("departure", "arrival"):
            assert found[carrier][kind] == pytest.approx(numbers[kind]), (carrier, kind)
        assert (found[carrier]["flights"], found[carrier]["cancelled"]) == (
            numbers["flights"],
            numbers["cancelled"],
        )


def test_cancelled_flights_are_counted_and_left_out_of_the_delays() -> None:
    found = computed(BLIZZARD)
    assert sum(carrier["cancelled"] for carrier in found.values()) == 472
    assert sum(carrier["flights"] for carrier in found.values()) == 930


def test_a_carrier_without_a_known_delay_gets_nulls_and_stays_json() -> None:
    nothing = {"mean": None, "median": None, "p90": None, "share_over_15": None}
    grounded = statistics(b"carrier,dep_time,dep_delay,arr_delay\nAS,,,\nAS,,,\n")
    assert grounded == {"flights": 2, "cancelled": 2, "departure": nothing, "arrival": nothing}
    assert "null" in json.dumps(grounded, allow_nan=False)


def test_a_flight_exactly_15_minutes_late_is_not_over_15() -> None:
    body = b"carrier,dep_time,dep_delay,arr_delay\nUA,517,15,16\nUA,600,-3,15\n"
    found = statistics(body)
    assert found["departure"]["share_over_15"] == 0
    assert found["arrival"]["share_over_15"] == 0.5


def test_splitting_keeps_every_row_and_the_header() -> None:
    body = csv_of(NEW_YEAR)
    header, *rows = body.splitlines()
    parts = split_by_carrier(body)
    assert all(part.splitlines()[0] == header for part in parts.values())
    assert sorted(row for part in parts.values() for row in part.splitlines()[1:]) == sorted(rows)
