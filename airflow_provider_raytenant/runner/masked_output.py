"""The way of an entrypoint's output through a mask to the job's log."""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
import threading
import time

from .console import write
from .masking import Mask
from .secret_forms import MIN_BYTES

_PIECE_BYTES = 65536
_HOLD_SECONDS = 0.2
_LONGEST_DRAIN_SECONDS = 1.0


class MaskedOutput:
    """A pipe for stdout and stderr of the entrypoint, and a thread that copies it, masked, to stdout.

    Both go through one pipe so that their order stays. They come out on stdout alone: Ray writes both to one
    file.

    What may be the beginning of a value is held back. If it is shorter than 5 bytes, the least that counts
    as a secret, it is let go when no more came for 0.2 s, so that prompts and progress bars appear. A longer
    one waits for the next byte or the end, since programs write when a buffer of some KB is full: the cut
    goes through a value now and then, with minutes between its halves. At the end all is let go, so a
    program that was killed right there may leave the beginning of a value as the last bytes of the log.

    What cannot be written to stdout (a full disk) is dropped, and the entrypoint goes on.

    writer: the end for the entrypoint. Nothing else that the runner starts gets it.
    """

    def __init__(self, mask: Mask) -> None:
        """Make the pipe and start the thread. Raises OSError, RuntimeError (no thread to be had)."""
        self._mask = mask
        self._reader, self.writer = os.pipe()
        self._end_reader, self._end_writer = os.pipe()
        self._end_at: float | None = None  # when to wait no longer, once the entrypoint has ended
        self._owed = 0
        self._thread = threading.Thread(target=self._copy, name="masked-output", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """The entrypoint has its copy of the pipe, or will not get one: the pipe may end when it does."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def finish(self) -> None:
        """The entrypoint has ended: returns when all that it wrote is on stdout.

        What it left behind may hold the pipe and is waited for 1 s; if it writes later, it gets SIGPIPE.
        """
        self.started()
        os.close(self._end_writer)
        self._thread.join()
        os.close(self._end_reader)

    def _copy(self) -> None:
        try:
            while self._wait():
                piece = os.read(self._reader, _PIECE_BYTES)
                if not piece:
                    break
                self._owed -= len(piece)
                write(1, self._mask.feed(piece))
            write(1, self._mask.flush())
        finally:
            # Whatever happened here: nobody shall wait for a pipe that nobody reads.
            os.close(self._reader)

    def _wait(self) -> bool:
        """Wait for more, or for the pipe's end. Returns False when neither is to be waited for any longer."""
        while True:
            short = 0 < self._mask.held < MIN_BYTES
            seconds = _HOLD_SECONDS if short else None
            watched = [self._reader]
            if self._end_at is None:
                watched.append(self._end_reader)
            else:
                left = self._end_at - time.monotonic()
                if left <= 0 and self._owed <= 0:
                    return False
                seconds = min(max(left, 0.0), _HOLD_SECONDS)
            ready = select.select(watched, [], [], seconds)[0]
            if self._end_reader in ready:
                # A pipe keeps the order: all that the entrypoint wrote is in what waits there now.
                self._owed = _waiting_bytes(self._reader)
                self._end_at = time.monotonic() + _LONGEST_DRAIN_SECONDS
            if self._reader in ready:
                return True
            if short and not ready:
                write(1, self._mask.flush())


def _waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
