"""Signals to the runner as a queue that is read, not as interruptions."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LONGEST_WAIT_SECONDS = 3600.0


class SignalQueue:
    """From its making on, SIGTERM, SIGINT, SIGHUP and SIGCHLD only wake `wait`.

    A signal of the first three that was ignored before stays so, for the entrypoint too. Every other
    process started later gets the default handling, as exec resets what is handled. Nothing is put back:
    once the entrypoint is over, a late signal must not keep the runner from its report.
    """

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _nothing)
        signal.signal(signal.SIGCHLD, _nothing)

    def wait(self, seconds: float | None) -> list[int]:
        """Wait for signals, at most so many seconds, None for as long as it takes (an hour at most).

        Returns the numbers that came, in order; empty when the time passed first.
        """
        limit = _LONGEST_WAIT_SECONDS if seconds is None else min(max(seconds, 0.0), _LONGEST_WAIT_SECONDS)
        if not select.select([self._reader], [], [], limit)[0]:
            return []
        try:
            return list(os.read(self._reader, 512))
        except BlockingIOError:
            return []


def _nothing(number: int, frame: FrameType | None) -> None:
    """A signal needs a Python handler for its number to be written to the wakeup pipe."""


def die_by(number: int) -> None:
    """End this process by the signal, without a core file.

    Returns only where the system does not let it (process 1 of a container, a signal that does not kill).
    """
    # Here and not on top, since few jobs die by a signal.
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
