"""What the runner says in the job's log."""

from __future__ import annotations

import os


def say(message: str) -> None:
    """One line on stderr, marked as the runner's."""
    line = " ".join(message.splitlines())
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
