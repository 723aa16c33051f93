"""The driver's output, line by line, while it is written; the runner's end record taken out of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.runner.end_record import LogSplitter

RECORD_WAIT = 2.5
"""Seconds that the stream gets after the job's end to bring the end record: Ray looks for new lines
once a second. Without the record the whole log is read once more."""

_RECONNECT_AFTER = 1.0


class LogFollower:
    """Copies a job's output to ``emit``, one complete line a call, each line once and in order.

    Trouble with the log is told to ``note`` and never raised: it says nothing about the job.
    """

    def __init__(
        self, client: RayClient, submission_id: str, emit: Callable[[str], None], note: Callable[[str], None]
    ) -> None:
        self._client = client
        self._submission_id = submission_id
        self._emit = emit
        self._note = note
        self._splitter = LogSplitter()
        self._seen = 0
        self._task: asyncio.Task[None] | None = None
        self._complete = asyncio.Event()

    @property
    def record(self) -> Mapping[str, Any] | None:
        """The runner's end record, once it came by."""
        return self._splitter.record

    def start(self) -> None:
        """Begin to follow, in the background."""
        self._task = asyncio.create_task(self._follow(), name=f"log of {self._submission_id}")

    async def finish(self, node_id: str | None = None) -> None:
        """The job has ended: get what is still missing of its output.

        :param node_id: the node that the driver ran on.
        """
        if self._task is not None and not self._complete.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._complete.wait(), RECORD_WAIT)
        await self.cancel()
        if not self._complete.is_set():
            await self._read_rest(node_id)
        for line in self._splitter.finish():
            self._emit(line)

    async def cancel(self) -> None:
        """Stop following. The job goes on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # `wait` tells the end of the task from a cancellation of who waits here.
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def _follow(self) -> None:
        told = False
        while True:
            position = 0
            try:
                async for text in self._client.tail(self._submission_id):
                    # Every stream starts at the first byte: what an earlier one brought is passed over.
                    self._take(text[max(0, self._seen - position) :])
                    position += len(text)
            except RayTenantError as error:
                if not told:
                    self._note(
                        f"The job's output cannot be followed just now ({error}); it will be read later."
                    )
                told = True
            await asyncio.sleep(_RECONNECT_AFTER)

    async def _read_rest(self, node_id: str | None) -> None:
        try:
            text = await self._client.logs(self._submission_id)
        except RayTenantError as error:
            try:
                if node_id is None:
                    raise
                text = await self._client.log_file(self._submission_id, node_id)
            except RayTenantError:
                self._note(f"The rest of the job's output could not be read: {error}")
                return
        self._take(text[self._seen :])

    def _take(self, text: str) -> None:
        self._seen += len(text)
        for piece in text.splitlines(keepends=True):
            record = self._splitter.record
            for line in self._splitter.feed(piece):
                self._emit(line)
            # A job can print the log of another with its record: only one at the end is the runner's.
            if self._splitter.record is not record:
                self._complete.set()
            else:
                self._complete.clear()
