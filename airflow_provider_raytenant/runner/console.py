"""What the runner says in the job's log."""

from __future__ import annotations

import os
from collections.abc import Callable

_hidden: list[Callable[[str], str]] = []


def hide(mask_text: Callable[[str], str]) -> None:
    """From now on every line that is said passes through this first (`Mask.mask_text`)."""
    _hidden[:] = [mask_text]


def say(message: str) -> None:
    """One line on stderr, marked as the runner's."""
    line = message
    for mask_text in _hidden:
        line = mask_text(line)
    line = " ".join(line.splitlines())
    write(2, f"raytenant: {line}\n".encode("utf-8", "backslashreplace"))


def write(file: int, data: bytes) -> None:
    """Write all to a file descriptor, in one append where the system does so.

    A log that can no longer be written to is passed over: the exit code still has to reach Ray.
    """
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        return
