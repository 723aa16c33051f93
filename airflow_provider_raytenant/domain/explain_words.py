"""Words that an explanation is made of: counts, places, spans of time, choices. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from airflow_provider_raytenant.domain.durations import format_duration

SHOWN: Final = 10
"""So many names stand in a sentence."""


def place(number: int) -> str:
    """``1st``, ``2nd``, ``11th``."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def ago(then: datetime | None, now: datetime) -> str:
    """``12m 5s ago``; ``at a time that is not known`` where there is none."""
    return "at a time that is not known" if then is None else f"{span(then, now)} ago"


def span(then: datetime | None, now: datetime) -> str:
    """How long it is since; ``-`` where that is not known."""
    return "-" if then is None else format_duration((now - then).total_seconds())


def states(found: Mapping[str, int]) -> str:
    """``running``, or ``2 running, 5 success``."""
    if sum(found.values()) == 1:
        return next(state for state, number in found.items() if number)
    return ", ".join(f"{number} {state}" for state, number in sorted(found.items()) if number)


def some(names: Sequence[str], most: int = SHOWN) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def choices(found: str, allowed: Iterable[str]) -> str:
    """What is allowed instead of what was found, the most alike first; all of it, if it is not much."""
    names = sorted(set(allowed))
    if not names:
        return "none: there is nothing yet"
    if len(names) > SHOWN:
        alike = difflib.get_close_matches(found, names, n=5, cutoff=0.5)
        names = alike + [name for name in names if name not in alike]
    return some(names)


def ranges(numbers: Iterable[int]) -> str:
    """``0 to 3, 7``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return some([str(first) if first == last else f"{first} to {last}" for first, last in parts])


def line_of(text: str, most: int = 300) -> str:
    """A text of somebody else in one line, without codes that a terminal obeys, and not too long."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= most else plain[: most - 3] + "..."
