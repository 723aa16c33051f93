"""The lines of a job's output, each once, from readings that begin at its first byte every time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_raytenant.runner.end_record import LogSplitter

_LONGEST_BEYOND: Final = 64 * 1024
"""Bytes by which a line without end may pass the limit before it is given up: more than a record's line."""


class LogLines:
    """Turns what readings bring into lines, without those that an earlier reading brought.

    A reading gives the output from its first byte on, raw or as Ray's text, of which every CR and every CRLF
    was made an LF. Both have the same measure if a CRLF counts as one byte, so one number says how far the
    lines have come, whatever was read first and whatever is read next.

    Lines end at LF alone, a CR stays in its line; what is no UTF-8 is replaced. The runner's end record is
    taken out, as :class:`LogSplitter` says.

    size: bytes of the output that were given as lines, a CRLF counted as one. It never lies behind an end
        record that closes the output, so who begins there finds the record.
    record: the last end record that came by, None before there was one.
    full: the next line would make ``size`` larger than ``max_bytes``; nothing more is given.
    """

    def __init__(self, size: int = 0, max_bytes: int | None = None) -> None:
        self.size = size
        self.record: Mapping[str, Any] | None = None
        self.full = False
        self._max_bytes = max_bytes
        self.begin()

    def begin(self) -> None:
        """A reading begins."""
        self._ahead = self.size
        self._after_cr = False
        self._splitter = LogSplitter()
        self._pieces: list[bytes] = []  # of the line that has no LF yet
        self._pending = 0
        self._sizes: deque[int] = deque()  # of the lines that the splitter holds back
        self._taken_out = 0

    @property
    def ends_with_record(self) -> bool:
        """Whether an end record is the last that the reading brought."""
        return self._taken_out > 0 and not self._sizes and not self._pieces

    @property
    def arrived(self) -> bool:
        """Whether the reading has come to where the lines went on."""
        return self._ahead == 0

    def pass_over(self, data: bytes) -> bytes:
        """The part of the reading's next bytes that is new."""
        if self._ahead and data:
            end = self._end_of(data)
            self._ahead -= _measure(data[:end], self._after_cr)
            self._after_cr = data[:end].endswith(b"\r")
            data = data[end:]
        # The LF of a CRLF of which the CR was counted.
        if data and not self._ahead and self._after_cr:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        return data

    def feed(self, data: bytes) -> list[str]:
        """Take bytes that :meth:`pass_over` gave; the lines that are complete now, without their LF."""
        return [] if self.full else self._feed(data)

    def finish(self) -> list[str]:
        """The output is over: what was held back, and a last line that has no LF."""
        if self.full:
            return []
        lines: list[str] = []
        if self._pieces:
            line = b"".join(self._pieces)
            self._pieces.clear()
            self._sizes.append(len(line))
            lines = self._splitter.feed(line.decode("utf-8", "replace"))
        return self._give(lines + self._splitter.finish())

    def _feed(self, data: bytes) -> list[str]:
        lines: list[str] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._pieces.append(piece)
            line = b"".join(self._pieces)
            self._pieces.clear()
            self._pending = 0
            lines += self._take(line)
            if self.full:
                return lines
        if rest:
            self._pieces.append(rest)
            self._pending += len(rest)
            limit = self._max_bytes
            self.full = limit is not None and self.size + self._pending > limit + _LONGEST_BEYOND
        return lines

    def _take(self, line: bytes) -> list[str]:
        before = self._splitter.record
        lines = self._splitter.feed(line.decode("utf-8", "replace") + "\n")
        self._sizes.append(len(line) + (0 if line.endswith(b"\r") else 1))
        given = self._give(lines)
        if self._splitter.record is not before and not self.full:
            self.record = self._splitter.record
            self._taken_out += sum(self._sizes)
            self._sizes.clear()
        return given

    def _give(self, lines: list[str]) -> list[str]:
        """Count the lines in, oldest first, as the splitter lets them out."""
        for number, _line in enumerate(lines):
            size = self.size + self._taken_out + self._sizes.popleft()
            if self._max_bytes is not None and size > self._max_bytes:
                self.full = True
                return lines[:number]
            self.size, self._taken_out = size, 0
        return lines

    def _end_of(self, data: bytes) -> int:
        """How many of these bytes are known: as many as measure what is still ahead."""
        end = min(self._ahead, len(data))
        while (short := self._ahead - _measure(data[:end], self._after_cr)) and end < len(data):
            end = min(end + short, len(data))
        return end


def _measure(data: bytes, after_cr: bool) -> int:
    """Bytes, a CRLF counted as one; ``after_cr``: a CR came just before them."""
    return len(data) - data.count(b"\r\n") - (after_cr and data.startswith(b"\n"))
