"""When logs may be read: everybody's readings together stay below what a dashboard bears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

LIVE_LOGS: Final = 100
"""Jobs whose output is read while they run, unless configured otherwise."""

READS_PER_SECOND: Final = 20.0
BYTES_PER_SECOND: Final = 4 * 1024**2
LARGE: Final = 256 * 1024
"""Bytes from which on a reading counts by its size, and no longer by its number."""

LIVE_AT_ONCE: Final = 4
LAST_AT_ONCE: Final = 8


class LogReads:
    """Shared by all followers of one cluster in one event loop.

    While a job runs, its log is read again and again, from the first byte each time, since Ray can give no
    other part than the last lines. This bounds what that costs: how many jobs take part, how many readings
    there are in a second, how many bytes, and how many at once. Large logs wait for each other only, so
    that they do not hold up small ones.

    :param live: how many jobs may be read while they run; the others wait for one of these to end.
    """

    def __init__(self, live: int = LIVE_LOGS) -> None:
        self.live = live
        self._seats = asyncio.Semaphore(live)
        self._live = asyncio.Semaphore(LIVE_AT_ONCE)
        self._last = asyncio.Semaphore(LAST_AT_ONCE)
        self._small = _Pace()
        self._large = _Pace()

    @property
    def taken(self) -> bool:
        """Whether somebody who wants a seat now has to wait for it."""
        return self._seats.locked()

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[None]:
        """A place among the jobs that are read while they run; first come, first served."""
        async with self._seats:
            yield

    @asynccontextmanager
    async def live_read(self, size: int) -> AsyncIterator[None]:
        """One reading of a running job's log, of about ``size`` bytes."""
        if size > LARGE:
            await self._large.turn(size / BYTES_PER_SECOND)
        else:
            await self._small.turn(1 / READS_PER_SECOND)
        async with self._live:
            yield

    @asynccontextmanager
    async def last_read(self) -> AsyncIterator[None]:
        """One reading of an ended job's log: its task waits for that."""
        async with self._last:
            yield


class _Pace:
    """Gives turns, first come, first served, each so long after the one before as that one costs."""

    def __init__(self) -> None:
        self._next = 0.0

    async def turn(self, cost: float) -> None:
        """Wait for a turn that costs so many seconds."""
        now = time.monotonic()
        mine = max(now, self._next)
        self._next = mine + cost
        await asyncio.sleep(mine - now)
