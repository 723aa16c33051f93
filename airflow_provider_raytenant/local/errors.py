"""What can go wrong with services on this machine.

::

    LocalError
    ├── ProgramMissing      a program that is to be started is not installed
    ├── NoFreePort          the kernel gave no free port
    ├── PathTooLong         a Unix socket would not fit below this directory
    ├── ServiceDied         a service ended while somebody waited for it
    ├── NotReady            a condition did not hold in time
    ├── RequestRefused      a service answered, but not with what was asked for
    ├── StopFailed          processes outlived SIGKILL
    └── StateUnreadable     the state file is damaged or from another version
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class LocalError(Exception):
    """Root of the errors of local services."""


class ProgramMissing(LocalError):
    """``program`` was found neither beside the interpreter nor on PATH; ``hint`` says how to get it."""

    def __init__(self, program: str, hint: str) -> None:
        super().__init__(f"{program} is not installed: {hint}")
        self.program = program
        self.hint = hint


class NoFreePort(LocalError):
    """Fewer than ``count`` ports were free between ``low`` and ``high``."""

    def __init__(self, count: int, low: int, high: int) -> None:
        super().__init__(f"found no {count} free port(s) between {low} and {high}")
        self.count = count
        self.low = low
        self.high = high


class PathTooLong(LocalError):
    """``path`` has ``length`` bytes; a Unix socket below it allows ``limit``."""

    def __init__(self, path: Path, length: int, limit: int) -> None:
        super().__init__(f"{path} has {length} bytes, but Ray's Unix sockets below it allow {limit} at most")
        self.path = path
        self.length = length
        self.limit = limit


class ServiceDied(LocalError):
    """The service ``name`` ended while somebody waited for ``what``; ``tail`` is the end of its log."""

    def __init__(self, name: str, what: str, log: Path, tail: str) -> None:
        super().__init__(f"{name} ended while waiting for {what}; the end of {log}:\n{tail}")
        self.name = name
        self.what = what
        self.log = log
        self.tail = tail


class NotReady(LocalError):
    """``what`` did not hold within ``timeout`` seconds; ``tail`` is the end of the service's log."""

    def __init__(self, what: str, timeout: float, tail: str = "") -> None:
        end = f"; the end of its log:\n{tail}" if tail else ""
        super().__init__(f"{what}: not within {timeout:g} s{end}")
        self.what = what
        self.timeout = timeout
        self.tail = tail


class RequestRefused(LocalError):
    """``method url`` was answered with ``status`` and ``body``."""

    def __init__(self, method: str, url: str, status: int, body: str) -> None:
        super().__init__(f"{method} {url}: {status}: {body[:2000]}")
        self.method = method
        self.url = url
        self.status = status
        self.body = body


class StopFailed(LocalError):
    """The processes ``pids`` were still there ``timeout`` seconds after SIGKILL."""

    def __init__(self, pids: Sequence[int], timeout: float) -> None:
        super().__init__(f"processes {', '.join(map(str, pids))} still live {timeout:g} s after SIGKILL")
        self.pids = tuple(pids)
        self.timeout = timeout


class StateUnreadable(LocalError):
    """The state file at ``path`` cannot be used; ``reason`` says why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
