"""How an entrypoint ended, in the words of the end record."""

from __future__ import annotations

from enum import Enum

EXIT_USAGE = 2  # the runner's own command line is wrong
EXIT_RESULT_REFUSED = 65  # EX_DATAERR of sysexits.h
EXIT_NO_TICKET = 77  # EX_NOPERM
EXIT_JOB_TIMEOUT = 124  # as timeout(1)
EXIT_NOT_EXECUTABLE = 126  # as POSIX shells
EXIT_NOT_FOUND = 127  # as POSIX shells


class Outcome(str, Enum):
    """What became of the entrypoint. NO_TICKET: the job was stopped before it could start.

    NO_CLAIM: what it was granted could not be claimed.
    """

    EXITED = "exited"
    SIGNALED = "signaled"
    JOB_TIMEOUT = "job_timeout"
    NOT_STARTED = "not_started"
    NO_TICKET = "no_ticket"
    NO_CLAIM = "no_claim"


class Ending:
    """The entrypoint's end, and with it the runner's.

    exit_code: what the runner exits with; None when it is to die by `signal` instead.
    signal: the signal's number, None when there was none.
    seconds: how long the entrypoint ran, by the monotonic clock; 0 where it did not start.
    extra: `{"result": value}`, `{"result_error": {...}}` or nothing.
    """

    def __init__(
        self, outcome: Outcome, exit_code: int | None = None, signal: int | None = None, seconds: float = 0.0
    ) -> None:
        self.outcome = outcome
        self.exit_code = exit_code
        self.signal = signal
        self.seconds = seconds
        self.extra: dict[str, object] = {}

    def record(self) -> dict[str, object]:
        """The object that `end_record.encode` writes: v, outcome, exit_code, signal, seconds, extra's."""
        return {
            "v": 1,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "seconds": round(self.seconds, 3),
            **self.extra,
        }
