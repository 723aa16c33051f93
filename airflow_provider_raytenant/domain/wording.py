"""Words that several rooms put into sentences. Pure."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """``1 slot``, ``2 slots``."""
    return f"{number} {what}{'' if number == 1 else 's'}"
