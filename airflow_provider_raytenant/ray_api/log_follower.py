"""The driver's output, line by line, while it is written; the runner's end record taken out of it.

The log is read again and again: from the file on the driver's node through the dashboard, which gives it as
it is, or else as the text that Ray's jobs API gives. No connection is held between two readings.

Ray's own streams need one for as long as a job runs, which breaks the dashboard for everybody (measured on
2.60): with a hundred tails of jobs open, no request to the jobs API is answered any more, and a tail that was
closed lives on until its job writes or ends. After a hundred streams of log files, open or closed, the state
API refuses every call until the dashboard is started anew, since such a stream never ends by itself.
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

from airflow_provider_raytenant.exceptions import RayTenantError, RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.log_end import LAST_LINES, read_log_end, without_overlap
from airflow_provider_raytenant.ray_api.log_lines import LogLines
from airflow_provider_raytenant.ray_api.log_position import LogPosition, PositionKeeper, Save
from airflow_provider_raytenant.ray_api.log_reads import LARGE, LogReads

MAX_BYTES: Final = 20 * 1024**2
"""Bytes of output that are copied, unless configured otherwise."""

_FIRST_WAIT = 1.0
_LONGEST_WAIT = 10.0
"""Seconds between two readings: the first after new output, growing by half while there is none. A reading
costs the dashboard about 10 ms of CPU (measured on 2.60)."""

_LONGEST_BACKOFF = 15.0

_UNPROBED: Final = 60.0
"""Seconds for which the end of a large log that rests stands for the whole of it. After that it is read once
more: an output that repeats itself may end as it did before."""

_PROBE_LINES: Final = 10
_PROBE_BYTES: Final = 64 * 1024

_LAST_ATTEMPTS: Final = 5
_LATE = 1.0
"""Seconds that an output without end record gets after the job's end: a driver may outlive its supervisor."""

_SLICE: Final = 64 * 1024
"""Bytes that are handed on before others get their turn in the event loop."""

_Pieces = AsyncGenerator[bytes, None]


class LogFollower:
    """Copies a job's output to ``emit``, one complete line a call, each line once and in order.

    Trouble with the log is told to ``note`` and never raised: it says nothing about the job.

    :param reads: what bounds the readings of all followers of this cluster in this event loop.
    :param resume: how far an earlier follower of the same job came; not for a job that was just submitted.
    :param save: stores how far this one has come, for a later one. What it raises is told once.
    :param max_bytes: how much of the output is copied; of the rest only the last lines are.
    :param rest: where all of the output can be seen, for the note that says it was cut.
    """

    def __init__(
        self,
        client: RayClient,
        submission_id: str,
        emit: Callable[[str], None],
        note: Callable[[str], None],
        *,
        reads: LogReads,
        resume: LogPosition | None = None,
        save: Save | None = None,
        max_bytes: int = MAX_BYTES,
        rest: str = "",
    ) -> None:
        self._client = client
        self._submission_id = submission_id
        self._emit = emit
        self._note = note
        self._reads = reads
        self._resume = resume
        self._resumed = resume is not None
        self._keeper = PositionKeeper(save, note, resume)
        self._max_bytes = max_bytes
        self._rest = rest
        self._lines = LogLines(0 if resume is None else resume.size, max_bytes)
        self._record: Mapping[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._finished = False
        self._cut_told = False
        self._last: deque[int] = deque(maxlen=LAST_LINES)
        # Of the last reading: its length, whether it brought nothing, the file's end, the time.
        self._length = 0
        self._rests = False
        self._ending = b""
        self._read_at = 0.0

    @property
    def record(self) -> Mapping[str, Any] | None:
        """The runner's end record, once it came by."""
        return self._record or self._lines.record

    @property
    def position(self) -> int:
        """Bytes of whole lines that were handed on, a CRLF counted as one."""
        return self._lines.size

    def start(self, node_id: str | None) -> None:
        """The job runs, on this node: begin to follow, in the background. More calls change nothing."""
        if self._task is None and not self._finished:
            self._task = asyncio.create_task(self._follow(node_id), name=f"log of {self._submission_id}")

    async def finish(self, node_id: str | None) -> None:
        """The job has ended: get what is still missing of its output.

        :param node_id: the node that the driver ran on.
        """
        self._finished = True
        await self._stop()
        self._keeper.job_ended()
        if not self._lines.full:
            await self._read_rest(node_id)
        await self._hand_on(self._lines.finish())
        if self._lines.full:
            self._tell_cut()
            self._show(await self._read_end(node_id))
        elif self.record is None and self._resumed:
            # It may lie in what the earlier follower handed on: Ray, too, writes to the log, and a line of
            # its own may come behind a short job's last (measured on 2.60).
            await self._read_end(node_id)
        await self._keeper.close()

    async def cancel(self) -> None:
        """Stop following, and save how far this has come. The job goes on."""
        self._finished = True
        await self._stop()
        await self._keeper.close()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # `wait` tells the end of the task from a cancellation of who waits here.
            await asyncio.wait([task])
            error = None if task.cancelled() else task.exception()
            if error is not None:
                # Trouble with the log says nothing about the job, whatever it is.
                self._note(f"The job's output could not be followed: {type(error).__name__}: {error}")

    async def _follow(self, node_id: str | None) -> None:
        if self._reads.taken:
            self._note(
                f"{self._reads.live} jobs are followed already; the output of this one is copied when one of "
                "them has ended, or else at its own end."
            )
        async with self._reads.seat():
            wait, failures, told = 0.0, 0, False
            while not self._lines.full:
                await asyncio.sleep(wait * random.uniform(0.9, 1.1))
                try:
                    quiet = await self._shows_nothing_new(node_id) or await self._reads_nothing_new(node_id)
                except RayTenantError as error:
                    failures += 1
                    wait = min(_FIRST_WAIT * 2 ** (failures - 1), _LONGEST_BACKOFF)
                    # One failure alone is nothing to speak of.
                    if failures > 1 and not told:
                        told = True
                        self._note(
                            f"The job's output cannot be followed just now ({error}); it will be read later."
                        )
                else:
                    failures = 0
                    wait = min(wait * 1.5, _LONGEST_WAIT) if quiet and wait else _FIRST_WAIT
            self._tell_cut()

    async def _shows_nothing_new(self, node_id: str | None) -> bool:
        """Whether the last lines of a large log that rested before are the ones that are known."""
        late = time.monotonic() - self._read_at > _UNPROBED
        if node_id is None or self._length <= LARGE or not self._rests or late:
            return False
        found = b""
        pieces = self._client.log_file(self._submission_id, node_id, lines=_PROBE_LINES)
        try:
            async with self._reads.live_read(0), aclosing(pieces):
                async for piece in pieces:
                    found = (found + piece)[-_PROBE_BYTES:]
        except RayTenantError:
            return False
        return bool(found) and self._ending.endswith(found)

    async def _reads_nothing_new(self, node_id: str | None) -> bool:
        before = self._lines.size
        async with self._reads.live_read(self._length):
            await self._read(node_id)
        self._rests = self._lines.size == before
        return self._rests

    async def _read(self, node_id: str | None) -> None:
        """One reading, from whatever gives one.

        :raises RayTenantError: nothing does.
        """
        if node_id is not None:
            try:
                await self._copy(self._file(node_id))
                return
            except RayTenantError as error:
                first = error
            try:
                await self._copy(self._text())
            except RayTenantError:
                raise first from None
        else:
            await self._copy(self._text())

    async def _file(self, node_id: str) -> _Pieces:
        length, ending = 0, b""
        pieces = self._client.log_file(self._submission_id, node_id)
        async with aclosing(pieces):
            async for piece in pieces:
                length += len(piece)
                ending = (ending + piece)[-_PROBE_BYTES:]
                yield piece
        self._length, self._ending, self._read_at = length, ending, time.monotonic()

    async def _text(self) -> _Pieces:
        # JSON needs three times the room for what is not ASCII.
        text = await self._client.logs(self._submission_id, largest=3 * self._max_bytes)
        data = text.encode("utf-8", "replace")
        self._length = len(data)
        yield data

    async def _copy(self, pieces: _Pieces) -> None:
        """Hand on what is new in a reading from the first byte on."""
        begun = False
        async with aclosing(pieces):
            async for piece in pieces:
                if not begun:
                    begun = True
                    self._lines.begin()
                rest = self._lines.pass_over(piece)
                if rest:
                    await self._keeper.before()
                for start in range(0, len(rest), _SLICE):
                    await self._hand_on(self._lines.feed(rest[start : start + _SLICE]))
                    if self._lines.full:
                        return
        if (begun or self._lines.size) and not (begun and self._lines.arrived):
            raise RayUnavailableError("the log was shorter than what had been read of it before")

    async def _hand_on(self, lines: list[str]) -> None:
        # Nothing may cut in between a line's count and its way out: no `await` before the last one.
        for line in lines:
            if self._resume is not None:
                self._tell_resumed(self._resume)
                self._resume = None
            self._emit(line)
            self._last.append(hash(line))
        if lines:
            self._keeper.moved(self._lines.size)
        await asyncio.sleep(0)

    async def _read_rest(self, node_id: str | None) -> None:
        whole: LogLines | None = None
        for attempt in range(1, _LAST_ATTEMPTS + 1):
            try:
                async with self._reads.last_read():
                    await self._read(node_id)
            except RayTenantError as error:
                if whole is not None and whole.size == self._lines.size:
                    # What broke off was read whole before: its last line is the whole one's.
                    self._lines = whole
                    return
                if attempt == _LAST_ATTEMPTS:
                    self._note(
                        f"The rest of the job's output could not be read: {error}{self._where('; see ')}"
                    )
                else:
                    await asyncio.sleep(_FIRST_WAIT * attempt)
                continue
            late = whole is not None
            if late or self._lines.ends_with_record or self._lines.full or node_id is None:
                return
            whole = copy.deepcopy(self._lines)
            await asyncio.sleep(_LATE)

    async def _read_end(self, node_id: str | None) -> list[str]:
        """The last lines; finds the record, too."""
        if node_id is None:
            return []
        try:
            async with self._reads.last_read():
                end = await read_log_end(self._client, self._submission_id, node_id)
        except RayTenantError as error:
            self._note(f"The end of the job's output could not be read: {error}")
            return []
        self._record = end.record
        return end.lines

    async def find_record(self, node_id: str) -> None:
        """Read the end of an ended job's output again, for its record.

        :raises RayTenantError: it cannot be read just now.
        """
        async with self._reads.last_read():
            self._record = (await read_log_end(self._client, self._submission_id, node_id)).record

    def _show(self, end: list[str]) -> None:
        lines = without_overlap(end, self._last)
        if lines:
            self._note("The last lines of the job's output:")
        for line in lines:
            self._emit(line)

    def _tell_cut(self) -> None:
        if not self._cut_told:
            self._cut_told = True
            self._note(
                f"The job's output is longer than the {self._max_bytes / 1024**2:g} MiB that are copied. Its "
                f"last lines will follow at the job's end{self._where('; all of it: ')}"
            )

    def _tell_resumed(self, resume: LogPosition) -> None:
        more = "" if resume.exact else "; up to 5 s of it may be repeated here, as a triggerer was killed"
        self._note(f"Going on with the job's output at byte {resume.size}{more}.")

    def _where(self, before: str) -> str:
        return f"{before}{self._rest}" if self._rest else ""
