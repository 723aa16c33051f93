"""The last lines of an output that is too long to be copied whole, and the end record behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.log_lines import LogLines
from airflow_provider_raytenant.runner.end_record import record_length

LAST_LINES: Final = 50
_FIRST_LOOK: Final = LAST_LINES + 50
"""Lines of the first reading: enough for a record with a result of the usual limit of 64 KB, too."""

_KEPT: Final = 16 * 1024**2
"""Bytes that are kept of a reading, from its end: more than the largest record has."""


@dataclass(frozen=True)
class LogEnd:
    """At most :data:`LAST_LINES` lines, and the last complete record among or behind them."""

    lines: list[str]
    record: Mapping[str, Any] | None


async def read_log_end(client: RayClient, submission_id: str, node_id: str) -> LogEnd:
    """Raises as :meth:`RayClient.log_file` does."""
    lines = _FIRST_LOOK
    while True:
        found = LogLines()
        kept = await _last_bytes(client.log_file(submission_id, node_id, lines=lines))
        own = found.feed(kept) + found.finish()
        lengths = (record_length(line) for line in reversed(own))
        length = 0 if found.record else next(filter(None, lengths), 0)
        # The record began before what was read: once more, with all of its lines.
        if length <= lines - LAST_LINES:
            return LogEnd(own[-LAST_LINES:], found.record)
        lines = length + LAST_LINES + 1


async def _last_bytes(pieces: AsyncGenerator[bytes, None]) -> bytes:
    kept: deque[bytes] = deque()
    size, kept_size = 0, 0
    async with aclosing(pieces):
        async for piece in pieces:
            kept.append(piece)
            size += len(piece)
            kept_size += len(piece)
            while kept_size - len(kept[0]) >= _KEPT:
                kept_size -= len(kept.popleft())
    data = b"".join(kept)[-_KEPT:]
    # What is left of the first line is no line.
    return data.partition(b"\n")[2] if size > len(data) else data


def without_overlap(lines: list[str], before: Sequence[int]) -> list[str]:
    """The lines without those at their beginning that were handed on just before.

    :param before: hashes of the last lines that were handed on.
    """
    hashes = [hash(line) for line in lines]
    for count in range(min(len(lines), len(before)), 0, -1):
        if hashes[:count] == list(before)[-count:]:
            return lines[count:]
    return lines
