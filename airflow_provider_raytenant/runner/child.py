"""Starting a process in the runner's own process group, and knowing when it ended."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping

from .ending import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND

# Python ignores these two when it starts; a program expects to die by them.
_IGNORED_BY_PYTHON = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


class NotStarted(Exception):
    """The entrypoint could not be started; exit_code is 127 (not found) or 126 (not executable)."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Child:
    """A process started by the runner.

    code: None while it runs; then its exit code, or -N when signal N killed it.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str], output: int | None = None) -> None:
        """Start it: the program is looked up in PATH, files of the runner's own stay closed.

        output: the file for its stdout and stderr, None (default) for the runner's own.

        posix_spawn keeps process group and session, so that Ray's watcher, which kills the group, finds it.

        Raises NotStarted.
        """
        if not command[0]:
            raise NotStarted(EXIT_NOT_FOUND, "program not found: the first argument after `--` is empty")
        redirected = () if output is None else [(os.POSIX_SPAWN_DUP2, output, number) for number in (1, 2)]
        try:
            self.pid = os.posix_spawnp(
                command[0], command, environment, file_actions=redirected, setsigdef=_IGNORED_BY_PYTHON
            )
        except OSError as error:
            raise _not_started(command[0], error) from None
        self.code: int | None = None

    def poll(self) -> int | None:
        """Look, without waiting, whether it ended. Returns `code`."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def send(self, number: int) -> None:
        """Send it a signal, if it has not been seen to end."""
        if self.code is None:
            os.kill(self.pid, number)


def _not_started(program: str, error: OSError) -> NotStarted:
    if error.errno == errno.ENOEXEC:
        reason = "exec format error; a script needs a first line such as #!/bin/sh"
        return NotStarted(EXIT_NOT_EXECUTABLE, f"cannot execute {program!r}: {reason}")
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        return NotStarted(EXIT_NOT_EXECUTABLE, f"cannot execute {program!r}: {error.strerror}")
    if "/" in program and os.path.exists(program):
        reason = "the file is there, but not the interpreter that its first line names"
        return NotStarted(EXIT_NOT_FOUND, f"cannot execute {program!r}: {reason}")
    where = "" if "/" in program else " in PATH"
    return NotStarted(EXIT_NOT_FOUND, f"program not found{where}: {program!r}")
