from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.durations import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43200),
        ("7d", 604800),
        ("0s", 0),
        (" 5 m ", 300),
        ("36500d", LONGEST),
    ],
)
def test_a_number_and_a_unit_are_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-1d", "1.5h", "7 days", "1d12h", "7D", "36501d", "9999999999d", "٣d", "1e3s"]
)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: a whole number with a unit: 90s, 30m, 12h, 7d") as error:
        parse_duration(text)
    assert str(error.value).startswith(f"found {text!r};")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (61, "1m 1s"),
        (3599, "59m 59s"),
        (3605, "1h"),
        (3725, "1h 2m"),
        (86400 * 9 + 5, "9d"),
        (90061, "1d 1h"),
        (-3, "0s"),
    ],
)
def test_a_span_is_told_in_two_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, LONGEST))
def test_what_is_told_is_less_than_a_part_in_24_below_the_span(seconds: int) -> None:
    told = sum(parse_duration(part) for part in format_duration(seconds).split())
    assert told <= seconds < told + max(1, told / 24)
