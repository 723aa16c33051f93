"""The end record: how a runner says, at the end of a job's log, what became of the entrypoint.

    <the job's own output>\\n
    ::raytenant-end:: 1/2 <up to 4000 characters of base64>\\n
    ::raytenant-end:: 2/2 <the rest>\\n

The base64 is a compact UTF-8 JSON object: v (1), outcome, exit_code, signal, seconds, and `result` or
`result_error` where there is one (see `ending` and `result`). The newline before the first line belongs to
the record, since the job may have left an unfinished line. The lines follow each other without a gap: the
runner hands them to the system in one append.

Nothing signs a record. A job can print one of its own; the last complete record of a log counts, and the
runner's comes last. What Ray says of the job's status stands above it.
"""

from __future__ import annotations

import binascii
import json
import re

from . import strict_json

PREFIX = "::raytenant-end:: "
CHUNK_CHARACTERS = 4000
MAX_LINES = 9999

_LINE = re.compile(re.escape(PREFIX) + r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3}) ([A-Za-z0-9+/=]{1,4000})")


def encode(record: dict[str, object]) -> str:
    """The record as text for the end of a log, beginning and ending with a newline, all ASCII.

    Raises ValueError for what JSON cannot hold and for more than 9999 lines (about 30 MB).
    """
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    data = binascii.b2a_base64(text.encode("utf-8"), newline=False).decode("ascii")
    chunks = [data[start : start + CHUNK_CHARACTERS] for start in range(0, len(data), CHUNK_CHARACTERS)]
    if len(chunks) > MAX_LINES:
        raise ValueError(f"an end record of {len(chunks)} lines; at most {MAX_LINES} are allowed")
    lines = [f"{PREFIX}{number}/{len(chunks)} {chunk}\n" for number, chunk in enumerate(chunks, start=1)]
    return "\n" + "".join(lines)


class LogSplitter:
    """Splits a job's log, as it comes, into the job's own lines and the end record.

    The text may come in any pieces. Lines end at `\\n` alone. Record lines are held back until the record
    is complete; lines that only look like one (a gap, a wrong order, no base64, no JSON object with
    `"v": 1`) come out as ordinary lines, in their order. An empty line comes out with the line after it,
    since it may belong to a record.

    record: the last complete and valid record, None before there is one.
    """

    def __init__(self) -> None:
        self.record: dict[str, object] | None = None
        self._pieces: list[str] = []  # of the line that has no newline yet
        self._held: list[str] = []  # perhaps an empty line, then the lines that make up `_chunks`
        self._chunks: list[str] = []
        self._total = 0

    def feed(self, text: str) -> list[str]:
        """Take the next piece of the log. Returns the job's lines that are complete now, without newlines."""
        lines: list[str] = []
        *complete, rest = text.split("\n")
        for end_of_line in complete:
            self._pieces.append(end_of_line)
            lines += self._take("".join(self._pieces))
            self._pieces.clear()
        if rest:
            self._pieces.append(rest)
        return lines

    def finish(self) -> list[str]:
        """The log is over: returns what was held back, and a last line that has no newline."""
        lines = self._take("".join(self._pieces)) if self._pieces else []
        self._pieces.clear()
        return lines + self._release()

    def _take(self, line: str) -> list[str]:
        match = _LINE.fullmatch(line)
        if match is None:
            lines = self._release()
            if line:
                return [*lines, line]
            self._held.append(line)
            return lines
        number, total, chunk = int(match[1]), int(match[2]), match[3]
        lines = []
        if self._chunks and (number, total) != (len(self._chunks) + 1, self._total):
            lines = self._release()
        if number != len(self._chunks) + 1:
            return [*lines, *self._release(), line]
        self._held.append(line)
        self._chunks.append(chunk)
        self._total = total
        return lines + self._complete() if number >= total else lines

    def _complete(self) -> list[str]:
        record = _decode("".join(self._chunks)) if len(self._chunks) == self._total else None
        if record is None:
            return self._release()
        self.record = record
        self._held.clear()
        self._chunks.clear()
        return []

    def _release(self) -> list[str]:
        lines = self._held
        self._held, self._chunks = [], []
        return lines


def _decode(data: str) -> dict[str, object] | None:
    try:
        # One level more than a result may have, since the record is around it.
        record = strict_json.loads(binascii.a2b_base64(data), strict_json.MAX_DEPTH + 1)
    except ValueError:
        return None
    return record if isinstance(record, dict) and record.get("v") == 1 else None


def record_length(line: str) -> int:
    """How many lines the record has that this line belongs to, by its shape; 0 for any other line."""
    match = _LINE.fullmatch(line)
    return int(match[2]) if match else 0


def strip_end_record(text: str) -> str:
    """The text without record lines and the empty line before them.

    For Ray's failure message, which quotes the last lines of the log: unlike `LogSplitter` it takes out
    every line of a record's shape, complete record or not, as the quote may begin in the middle of one.
    """
    kept: list[str] = []
    in_record = False
    for line in text.split("\n"):
        is_record = _LINE.fullmatch(line) is not None
        if is_record and not in_record and kept and not kept[-1]:
            kept.pop()
        if not is_record:
            kept.append(line)
        in_record = is_record
    return "\n".join(kept)
