"""What is told once a change: a trouble when it begins, when it turns into another, and when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from airflow_provider_raytenant.domain.durations import format_duration


class Notices:
    """Remembers what was told of each subject (``cluster shared``).

    :param say: is told one line at a time.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since: dict[str, float] = {}
        self._kinds: dict[str, type[Exception]] = {}
        self._standing: dict[str, set[str]] = {}

    def bad(self, subject: str, error: Exception) -> None:
        """Something fails. The class counts: the words of one and the same trouble may differ each time."""
        if self._kinds.get(subject) is not type(error):
            self._say(f"{subject}: {error}; trying on")
        self._kinds[subject] = type(error)
        self._since.setdefault(subject, time.monotonic())

    def good(self, subject: str) -> None:
        """It works."""
        if self._kinds.pop(subject, None) is not None:
            took = time.monotonic() - self._since.pop(subject)
            self._say(f"{subject}: well again after {format_duration(took)}")

    def is_bad(self, subject: str) -> bool:
        """Whether it failed the last time."""
        return subject in self._kinds

    def standing(self, subject: str, texts: Iterable[str]) -> None:
        """What is wrong now, each told when it comes and when it goes."""
        now, before = set(texts), self._standing.get(subject, set())
        for text in sorted(now - before):
            self._say(f"{subject}: {text}")
        for text in sorted(before - now):
            self._say(f"{subject}: no longer: {text}")
        self._standing[subject] = now
