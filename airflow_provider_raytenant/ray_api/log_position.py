"""How far a job's output has been handed on, kept where a follower that comes later finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Self

SAVE_EVERY: Final = 4.0
"""Seconds between two saves while output comes: with the time that a save takes less than the 5 s that may
be repeated after a kill."""

SAVE_PATIENCE: Final = 2.0
"""Seconds that a save may take before nobody waits for it any more."""


@dataclass(frozen=True)
class LogPosition:
    """How much of a job's output was handed on.

    size: bytes of whole lines, a CRLF counted as one (see ``LogLines``).
    exact: nothing was handed on since; else up to :data:`SAVE_EVERY` seconds of output may have been.
    """

    size: int = 0
    exact: bool = False

    def to_json(self) -> dict[str, Any]:
        """``{"size": 1234, "exact": true}``."""
        return {"size": self.size, "exact": self.exact}

    @classmethod
    def from_json(cls, data: Any) -> Self | None:
        """The position that :meth:`to_json` wrote; ``None`` for anything else."""
        if not isinstance(data, dict):
            return None
        size, exact = data.get("size"), data.get("exact")
        if type(size) is not int or size < 0 or type(exact) is not bool:
            return None
        return cls(size, exact)


Save = Callable[[LogPosition], Awaitable[None]]


class PositionKeeper:
    """Saves positions: before the first output, every few seconds while it comes, and at the end.

    The first save says that what follows may have been handed on. Without it a successor could not know of
    output that came before the first regular save.

    Trouble with a save is told to ``note`` once and never raised.
    """

    def __init__(self, save: Save | None, note: Callable[[str], None], saved: LogPosition | None) -> None:
        self._save = save
        self._note = note
        self._saved = saved
        self._size = 0 if saved is None else saved.size
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._told = False

    async def before(self) -> None:
        """Output is about to be handed on."""
        if self._save is None or self._task is not None:
            return
        self._task = asyncio.create_task(self._keep())
        if self._saved is None or self._saved.exact:
            await self._write(LogPosition(self._size))

    def moved(self, size: int) -> None:
        """Output was handed on, up to ``size``."""
        self._size = size
        self._moved.set()

    def job_ended(self) -> None:
        """All output that is still to come comes now: where nothing was saved yet, nothing is.

        A short job's end would have to wait for two saves, which serve a successor only if a triggerer is
        killed in this very moment. It repeats the little there is then.
        """
        if self._saved is None and self._task is None:
            self._save = None

    async def close(self) -> None:
        """Nothing more is handed on now: save the exact position."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        await self._write(LogPosition(self._size, exact=True))

    async def _keep(self) -> None:
        while True:
            await self._moved.wait()
            await asyncio.sleep(SAVE_EVERY)
            self._moved.clear()
            await self._write(LogPosition(self._size))

    async def _write(self, position: LogPosition) -> None:
        """One write at a time, so that an old position never comes after a new one."""
        if self._save is None or position == self._saved:
            return
        if self._writing is not None:
            await self._patiently(self._writing)
        # A task of its own: what a save raises is looked at, not caught, since it may be anything.
        self._writing = asyncio.create_task(self._written(self._save, position))
        self._writing.add_done_callback(self._look)
        await self._patiently(self._writing)

    async def _written(self, save: Save, position: LogPosition) -> None:
        await save(position)
        self._saved = position

    async def _patiently(self, write: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait([write], timeout=SAVE_PATIENCE)
        if not done:
            write.cancel()
            self._tell("it takes too long")

    def _look(self, write: asyncio.Task[None]) -> None:
        error = None if write.cancelled() else write.exception()
        if error is not None:
            self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            self._note(
                f"How far the output has been copied cannot be saved ({why}); after a restart of the "
                "triggerer more of it may be repeated."
            )
