"""Amounts as people write them, as numbers that add up: memory in bytes, CPUs and GPUs as fractions.

Ray counts resources in steps of 1/10000; so do we, which keeps sums and comparisons exact.
"""

from __future__ import annotations

import math
import re
from typing import Final

STEPS: Final = 10_000
"""Steps per CPU, GPU or unit of a custom resource: Ray's own resolution."""

LARGEST_MEMORY: Final = 2**63 - 1
LARGEST_COUNT: Final = 10**9
"""Beyond these no machine has anything, and floats have no four decimals."""

MEMORY_ALLOWED: Final = "bytes as a whole number, or a number with a unit: 512MiB, 4GiB, 4GB, 1.5TiB"
COUNT_ALLOWED: Final = "a number of at least 0 with at most four decimals: 0.5, 1, 16"

_UNITS: Final = {
    "B": 1,
    **{f"{p}B": 1000**n for n, p in enumerate("KMGTP", start=1)},
    **{f"{p}iB": 1024**n for n, p in enumerate("KMGTP", start=1)},
}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?i?B)")


def parse_memory(value: object) -> int:
    """``value`` in bytes, from ``"4GiB"`` (1024-based), ``"4GB"`` (1000-based) or a whole number.

    :raises ValueError: saying what was found and what is allowed.

    >>> parse_memory("512MiB")
    536870912
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_MEMORY:
        return value
    if isinstance(value, str) and len(value) <= 50:
        match = _MEMORY.fullmatch(value.strip())
        if match and match[2] in _UNITS:
            # Whole numbers stay whole: a float would lose bytes above 2**53.
            number = float(match[1]) if "." in match[1] else int(match[1])
            size = int(number * _UNITS[match[2]])
            if size <= LARGEST_MEMORY:
                return size
    raise ValueError(f"found {value!r}; allowed: {MEMORY_ALLOWED}")


def parse_count(value: object) -> float:
    """A number of CPUs, GPUs or units of a custom resource, rounded to Ray's 1/10000.

    :raises ValueError: saying what was found and what is allowed.
    """
    # The comparison comes first: it refuses NaN, and whole numbers that are too large for a float.
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT:
        rounded = round(float(value), 4)
        if math.isclose(rounded, value, rel_tol=0, abs_tol=1e-9):
            return rounded
    raise ValueError(f"found {value!r}; allowed: {COUNT_ALLOWED}")


def parse_fraction(value: object) -> float:
    """A share above 0 and up to 1, from ``"90%"`` or ``0.9``.

    :raises ValueError: saying what was found and what is allowed.
    """
    number: float | None = None
    if isinstance(value, str) and re.fullmatch(r"\d+(?:\.\d+)?\s*%", value.strip()):
        number = float(value.strip().rstrip("%")) / 100
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
        number = float(value)
    if number is not None and 0 < number <= 1:
        return number
    raise ValueError(f"found {value!r}; allowed: a share above 0 and up to 1: 90% or 0.9")


def format_memory(size: int) -> str:
    """Bytes for people, in the largest 1024-based unit that needs at most one decimal.

    >>> format_memory(1610612736)
    '1.5GiB'
    """
    amount, unit = float(size), "B"
    for step in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, step
    return f"{amount:.1f}".removesuffix(".0") + unit


def format_count(number: float) -> str:
    """A count without needless decimals.

    >>> format_count(2.0), format_count(0.5)
    ('2', '0.5')
    """
    return f"{number:.4f}".rstrip("0").rstrip(".")
