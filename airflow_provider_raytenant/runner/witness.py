"""Did the sender of a signal reach the whole process tree, or the runner alone?

Ray stops a job by signalling the runner and each of its descendants. Were the runner to forward that
signal, the entrypoint would get it twice, and the second would break into the cleaning up that the first
began (a Python program raises SystemExit inside its `finally`). A `kill` of the runner alone, however, must
be forwarded. Nothing tells these apart from outside, so a process that does nothing stands beside the
entrypoint: what it got, the entrypoint got.
"""

from __future__ import annotations

import os
import signal
import time

_SETTLE_SECONDS = 0.3
_POLL_SECONDS = 0.01


class Witness:
    """An idle `sh` in the runner's process group, named raytenant-witness in `ps`.

    It waits for the end of a pipe whose other end only the runner has, so it never outlives the runner.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._pipe = -1
        self._plant()

    def saw(self, number: int) -> bool:
        """Whether the witness died by this signal; waits up to 0.3 s, for a sender takes them in turn."""
        end = time.monotonic() + _SETTLE_SECONDS
        while self._pid:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                os.close(self._pipe)
                self._plant()
                return os.waitstatus_to_exitcode(status) == -number
            if time.monotonic() > end:
                break
            time.sleep(_POLL_SECONDS)
        return False

    def close(self) -> None:
        """Let it go, and wait for it."""
        if self._pid:
            os.close(self._pipe)
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _plant(self) -> None:
        reader, self._pipe = os.pipe()
        actions = [
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        command = ["raytenant-witness", "-c", "read _"]
        try:
            self._pid = os.posix_spawn("/bin/sh", command, {}, file_actions=actions)
        except OSError:  # no process to be had: go without, which means to forward
            self._pid = 0
            os.close(self._pipe)
        os.close(reader)
