"""How long a task is first in line before slots are kept for it out of its turn. Pure.

That is a matter of how fast slots come free: where jobs run for a minute, who is first for minutes is passed
over; where they run for hours, everyone who waits is first for minutes, and if all of them starved, slots
would go by the longest wait alone, whatever the weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LEAST: Final = 60.0
"""Seconds, however fast slots come free."""

MOST: Final = 4 * 3600.0
"""Seconds, also where most of the slots are held by jobs that do not end."""


def patience_of(held: Iterable[tuple[int, float]]) -> float:
    """Seconds, from :data:`LEAST` to :data:`MOST`: about as long as what runs here holds its slots.

    Twice as long as half of the slots have been held at most: where jobs of equal length start one after the
    other, that is their length. Half of them, because a few jobs that stay for days among short ones tell
    nothing of when slots come free.

    :param held: of each task that holds slots: how many, and for how many seconds by now.
    """
    by_age = sorted((seconds, slots) for slots, seconds in held)
    half = sum(slots for _, slots in by_age) / 2
    younger = 0
    for seconds, slots in by_age:
        younger += slots
        if younger >= half:
            return min(MOST, max(LEAST, 2 * seconds))
    return LEAST
