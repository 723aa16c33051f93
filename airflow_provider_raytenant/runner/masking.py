"""Hiding secret values in what a job writes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from .secret_forms import decode, encode, forms

MARK = "***"
_MARK_BYTES = MARK.encode("ascii")
_HEAD_BYTES = 12  # of "-----BEGIN PRIVATE KEY" more than the dashes, which stand in many a table
_FACTORED_BYTES = 3  # more is no faster (measured on Python 3.11)


class Mask:
    """Replaces secret values by `***`, in a stream of bytes, in texts, and in JSON values.

    values: the secrets. What is looked for is in `secret_forms.forms`: the usual encodings, and each line of
    8 characters or more of a value of several lines. Values shorter than 5 bytes are not hidden, as in
    Airflow's masker ([logging] min_length_masked_secret): the output would be destroyed.

    Every byte that belongs to an occurrence of a value is hidden. Occurrences that overlap become one `***`,
    so neither the longer of two values nor the end of the later one shows.

    A mask without anything to hide is false and passes everything on. One thread may feed while others add
    values or mask texts.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._values: set[str] = set()
        self._patterns = _Patterns(())
        self._tail = b""  # it may be the beginning of a value
        self._said = 0  # how much of `_tail` was given out already, in the clear or as a mark
        self._marked = False  # whether the last thing given out was a mark
        self.add(values)

    def __bool__(self) -> bool:
        return bool(self._patterns.sorted)

    def add(self, values: Iterable[str]) -> None:
        """Hide these too from now on, e.g. credentials that were renewed."""
        self._values.update(values)
        # One assignment: another thread may be in the middle of `feed`.
        self._patterns = _Patterns(form for value in self._values for form in forms(value))

    @property
    def held(self) -> int:
        """How many bytes of the stream are held back, since a value may begin with them."""
        return len(self._tail) - self._said

    def feed(self, chunk: bytes) -> bytes:
        """Take the next piece of the stream. Returns what can be shown now, values hidden."""
        patterns = self._patterns
        data = self._tail + chunk
        keep = patterns.beginning(data)
        shown = self._show(patterns, data, keep)
        self._tail, self._said = data[keep:], self._said - keep
        return shown

    def flush(self) -> bytes:
        """Let go what is held back: no more came for a while, or the stream is over.

        Where the rest of a value comes after all, the rest is hidden: only what was let go has been shown.
        """
        return self._show(self._patterns, self._tail, len(self._tail))

    def _show(self, patterns: _Patterns, data: bytes, keep: int) -> bytes:
        shown: list[bytes] = []
        for start, end in patterns.occurrences(data):
            if start > keep:  # a longer value may begin before it
                break
            if end <= self._said:
                continue
            if start >= self._said:
                shown += (data[self._said : start], _MARK_BYTES)
            elif not self._marked:  # its beginning was let go, its end shall not follow
                shown.append(_MARK_BYTES)
            self._said, self._marked = end, True
        if self._said < keep:
            shown.append(data[self._said : keep])
            self._said, self._marked = keep, False
        return b"".join(shown)

    def mask_bytes(self, data: bytes) -> bytes:
        """The data by itself, apart from the stream."""
        shown: list[bytes] = []
        said = 0
        for start, end in self._patterns.occurrences(data):
            if start >= said:
                shown += (data[said:start], _MARK_BYTES)
            said = max(said, end)
        return b"".join((*shown, data[said:])) if shown else data

    def mask_text(self, text: str) -> str:
        """The text by itself, apart from the stream."""
        # Every form begins and ends with whole characters, so what is left over is UTF-8 again.
        return decode(self.mask_bytes(encode(text))) if self else text

    def mask_json(self, value: object) -> object:
        """A copy of a JSON value with the secrets hidden in all its strings, also in keys.

        Keys that would become equal are told apart by a number (`***`, `*** (2)`). A number that is a secret
        stays: only strings are looked at.
        """
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, (list, tuple)):
            return [self.mask_json(item) for item in value]
        if not isinstance(value, dict):
            return value
        masked: dict[object, object] = {}
        # Keys that stay as they are keep their names, wherever they stand.
        names = {key: self.mask_json(key) for key in value}
        taken = {key for key, name in names.items() if name == key}
        for key, item in value.items():
            name = names[key]
            if name != key:
                name = _free(str(name), taken)
                taken.add(name)
            masked[name] = self.mask_json(item)
        return masked


def _free(name: str, taken: set[object]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


class _Patterns:
    """What is looked for, made ready for it; never changed.

    One compiled expression looks for the heads of patterns, their first 12 bytes. Of whole patterns it would
    find no faster, and take ten times as long to compile.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self.sorted = sorted(set(patterns))
        longest_first = sorted(self.sorted, key=len, reverse=True)
        # All patterns that may match where the head does, the longest first.
        self._by_head: dict[bytes, list[bytes]] = {}
        for pattern in longest_first:
            self._by_head.setdefault(pattern[:_HEAD_BYTES], []).append(pattern)
        for head, here in self._by_head.items():
            here += (
                head[:length] for length in range(len(head) - 1, 0, -1) if head[:length] in self._by_head
            )
        self._head = re.compile(_alternatives(list(self._by_head), _FACTORED_BYTES))
        self._longest = len(longest_first[0]) if longest_first else 0
        self._short = {
            pattern[:length] for pattern in self.sorted for length in range(1, min(_HEAD_BYTES, len(pattern)))
        }

    def occurrences(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Start and end of each occurrence, by their start; the longest of those that start together."""
        if not self.sorted:
            return
        found = self._head.search(data)
        while found:
            start = found.start()
            for pattern in self._by_head[found[0]]:
                if data.startswith(pattern, start):
                    yield start, start + len(pattern)
                    break
            found = self._head.search(data, start + 1)

    def beginning(self, data: bytes) -> int:
        """The least position from which all to the end is the beginning of a pattern, but not all of it."""
        if not self.sorted:
            return len(data)
        start = max(0, len(data) - self._longest + 1)
        while (found := self._head.search(data, start)) and found.start() <= len(data) - _HEAD_BYTES:
            if self._begins_a_longer_one(data[found.start() :]):
                return found.start()
            start = found.start() + 1
        for length in range(min(_HEAD_BYTES - 1, len(data)), 0, -1):
            if data[-length:] in self._short:
                return len(data) - length
        return len(data)

    def _begins_a_longer_one(self, text: bytes) -> bool:
        # What begins with the text stands right behind it in the order.
        index = bisect_right(self.sorted, text)
        return index < len(self.sorted) and self.sorted[index].startswith(text)


def _alternatives(patterns: list[bytes], depth: int) -> bytes:
    """An expression for the first of these that matches; those with the same first byte keep their order.

    Common beginnings are taken out: Python tries the alternatives one by one.
    """
    if depth == 0 or len(patterns) < 2:
        return b"|".join(map(re.escape, patterns))
    groups: dict[bytes, list[bytes]] = {}
    for pattern in patterns:
        groups.setdefault(pattern[:1], []).append(pattern[1:])
    return b"|".join(
        re.escape(first) + b"(?:" + _alternatives(rest, depth - 1) + b")" for first, rest in groups.items()
    )
