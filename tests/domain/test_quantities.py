from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.quantities import (
    COUNT_ALLOWED,
    LARGEST_COUNT,
    LARGEST_MEMORY,
    MEMORY_ALLOWED,
    format_count,
    format_memory,
    parse_count,
    parse_fraction,
    parse_memory,
)
from tests.domain.helpers import seeded


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512MiB", 512 * 1024**2),
        ("4GiB", 4 * 1024**3),
        ("4GB", 4 * 1000**3),
        ("1.5TiB", 3 * 1024**4 // 2),
        ("1KB", 1000),
        ("2PiB", 2 * 1024**5),
        ("7B", 7),
        ("4 GiB", 4 * 1024**3),
        (" 4 GiB ", 4 * 1024**3),
        ("0.5B", 0),
        (0, 0),
        (12345, 12345),
        (LARGEST_MEMORY, LARGEST_MEMORY),
        ("9007199254740993B", 2**53 + 1),
    ],
)
def test_memory_is_read_in_bytes(written: object, size: int) -> None:
    parsed = parse_memory(written)
    assert parsed == size
    assert type(parsed) is int


@pytest.mark.parametrize(
    "written",
    [
        "4Gib",
        "4G",
        "4g",
        "4gib",
        "GiB",
        "-1",
        "-1GiB",
        "1e9",
        "1e3MiB",
        "4iB",
        "1.GiB",
        ".5GiB",
        "4",
        "",
        " ",
        "4GiB 2MiB",
        "4GiB\n4GiB",
        "9" * 5000 + "GiB",
        "9" * 400 + ".5GiB",
        "8192PiB",
        True,
        False,
        None,
        -1,
        1.5,
        4.0,
        math.nan,
        math.inf,
        LARGEST_MEMORY + 1,
        10**400,
        [],
        {},
        b"4GiB",
    ],
)
def test_wrong_memory_says_what_was_found_and_what_is_allowed(written: object) -> None:
    with pytest.raises(ValueError, match="found") as error:
        parse_memory(written)
    assert str(error.value) == f"found {written!r}; allowed: {MEMORY_ALLOWED}"


@pytest.mark.parametrize(
    ("written", "count"),
    [
        (0, 0),
        (1, 1),
        (16, 16),
        (0.5, 0.5),
        (0.0001, 0.0001),
        (1.2345, 1.2345),
        (0.1 + 0.2, 0.3),
        (-0.0, 0),
        (LARGEST_COUNT, LARGEST_COUNT),
    ],
)
def test_counts_are_read_to_four_decimals(written: float, count: float) -> None:
    parsed = parse_count(written)
    assert parsed == count
    assert type(parsed) is float


@pytest.mark.parametrize(
    "written",
    [
        -1,
        -0.0001,
        0.00001,
        1.23456,
        True,
        False,
        "1",
        "",
        None,
        math.nan,
        math.inf,
        -math.inf,
        [],
        10**400,
        1e300,
    ],
)
def test_wrong_counts_say_what_was_found_and_what_is_allowed(written: object) -> None:
    with pytest.raises(ValueError, match="found") as error:
        parse_count(written)
    assert str(error.value) == f"found {written!r}; allowed: {COUNT_ALLOWED}"


@pytest.mark.parametrize(
    ("written", "share"),
    [("90%", 0.9), ("100%", 1), (" 12.5 % ", 0.125), (0.9, 0.9), (1, 1), (1.0, 1), (1e-9, 1e-9)],
)
def test_fractions_are_read_from_percent_and_number(written: object, share: float) -> None:
    assert parse_fraction(written) == share


@pytest.mark.parametrize(
    "written",
    ["0%", 0, 0.0, "101%", 1.01, 90, "0.9", "-5%", "90", "%", "", None, True, math.nan, math.inf, 10**400],
)
def test_wrong_fractions_say_what_was_found_and_what_is_allowed(written: object) -> None:
    with pytest.raises(ValueError, match="found") as error:
        parse_fraction(written)
    assert str(error.value) == f"found {written!r}; allowed: a share above 0 and up to 1: 90% or 0.9"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (1536, "1.5KiB"),
        (4 * 1024**3, "4GiB"),
        (4 * 1000**3, "3.7GiB"),
        (1024**4, "1TiB"),
        (1024**5, "1PiB"),
        (5000 * 1024**5, "5000PiB"),
    ],
)
def test_memory_is_shown_in_the_largest_unit(size: int, shown: str) -> None:
    assert format_memory(size) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.0, "0"), (2.0, "2"), (0.5, "0.5"), (10.0, "10"), (0.0001, "0.0001"), (1.25, "1.25")],
)
def test_counts_are_shown_without_needless_decimals(number: float, shown: str) -> None:
    assert format_count(number) == shown


@seeded
@given(st.integers(0, 1024**6))
def test_memory_comes_back_from_its_text_within_rounding(size: int) -> None:
    # One decimal of the unit; the unit is never more than the size itself.
    assert abs(parse_memory(format_memory(size)) - size) <= max(0, size * 0.05 + 1 if size >= 1024 else 0)


@seeded
@given(st.integers(0, LARGEST_MEMORY // 1024**3), st.sampled_from(["", " "]))
def test_whole_gibibytes_come_back_exactly(count: int, space: str) -> None:
    assert parse_memory(f"{count}{space}GiB") == count * 1024**3


@seeded
@given(st.integers(0, 10**10))
def test_counts_come_back_from_their_text_exactly(steps: int) -> None:
    count = parse_count(steps / 10_000)
    assert float(format_count(count)) == count == steps / 10_000
