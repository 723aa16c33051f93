"""Spans of time as people write and read them."""

from __future__ import annotations

import re
from typing import Final

ALLOWED: Final = "a whole number with a unit: 90s, 30m, 12h, 7d"
LONGEST: Final = 36500 * 86400
"""A hundred years: beyond it no date can be computed."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> int:
    """Seconds of ``"90s"``, ``"30m"``, ``"12h"`` or ``"7d"``.

    :raises ValueError: saying what was found and what is allowed.

    >>> parse_duration("12h")
    43200
    """
    match = re.fullmatch(r"([0-9]{1,10})\s*([smhd])", text.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else LONGEST + 1
    if seconds > LONGEST:
        raise ValueError(f"found {text!r}; allowed: {ALLOWED}")
    return seconds


def format_duration(seconds: float) -> str:
    """The two largest units at most, short enough for a column.

    >>> format_duration(42), format_duration(3725), format_duration(86400 * 9)
    ('42s', '1h 2m', '9d')
    """
    left = max(0, int(seconds))
    parts = []
    for unit, size in reversed(_UNITS.items()):
        amount, left = divmod(left, size)
        if amount:
            parts.append(f"{amount}{unit}")
        if parts and (len(parts) == 2 or not amount):
            break
    return " ".join(parts) or "0s"
