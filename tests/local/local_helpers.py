from __future__ import annotations

from pathlib import Path

import psutil

REPOSITORY = Path(__file__).parents[2]


def command_lines(text: str) -> list[str]:
    """The command lines of live processes that contain ``text``."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if text in line:
            found.append(line)
    return found
