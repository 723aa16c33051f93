"""Whether one listing or single reads cost the dashboard less."""

from __future__ import annotations

from typing import Final

SINGLE_MS: Final = 2.4
"""Milliseconds of the server's CPU for ``GET /api/jobs/{id}`` (measured on Ray 2.60)."""

LISTING_MS: Final = 3.4
RECORD_MS: Final = 0.4
"""The same for ``GET /api/jobs/``: the first for the request, the second for each record. Bare records cost
0.25 ms (1, 20 and 60 gave 3.7, 9.4 and 18.3 ms), those of our jobs, with their metadata and what Ray's own
store spends on them, 0.35 to 0.5 ms (measured on Ray 2.60; ``benchmarks/poller_cost.py``)."""

FIRST_GUESS: Final = 60
"""Records that a cluster has before we know. From a dozen looks in a round on we find out at once, else once
single reads have cost as much: so what we do not know costs twice what it had to, at most."""

REFRESH_AFTER: Final = 10.0
"""A listing is made again, whatever it seems to cost, once single reads have cost so many times as much:
so what we know of the number of records is not wrong for long, and finding out adds a tenth at most."""


class ReadingCost:
    """Knows how many records the last listing had, and what was spent on single reads since."""

    def __init__(self) -> None:
        self._records = FIRST_GUESS
        self._spent = 0.0
        self._patience = 1.0

    def prefers_listing(self, looks: int) -> bool:
        """Whether to list for this many looks; never for one, which a listing cannot serve for less."""
        singles = looks * SINGLE_MS
        if singles <= LISTING_MS:
            return False
        listing = LISTING_MS + RECORD_MS * self._records
        return listing < singles or self._spent >= self._patience * listing

    def listed(self, records: int) -> None:
        """A listing was made and had this many records."""
        self._records = records
        self._spent = 0.0
        self._patience = REFRESH_AFTER

    def read(self, looks: int) -> None:
        """So many looks were served by single reads."""
        if looks * SINGLE_MS > LISTING_MS:
            self._spent += looks * SINGLE_MS
