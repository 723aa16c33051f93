"""The runner's command line.

Read by hand instead of with argparse: argparse refuses a `--shell` string that begins with a dash, its
treatment of `--` differs between Python versions, and it would double the runner's start-up time.
"""

from __future__ import annotations

import math

DEFAULT_GRACE_SECONDS = 10.0
DEFAULT_RESULT_MAX_BYTES = 65536
# A result may grow about fourfold when it is written out again (1e15 becomes 1000000000000000.0) and must
# still fit an end record.
LARGEST_RESULT_MAX_BYTES = 4 * 1024 * 1024


class UsageError(ValueError):
    """The command line is wrong; the message is one line that names the argument and what is allowed."""


class Options:
    """What to run and under which rules.

    command: program and arguments, at least one item; for `--shell` it is `/bin/sh -c -- STRING`.
    private_cwd: run in a fresh empty directory, default False.
    copy_cwd: run in a private copy of the current directory, default False.
    job_timeout: seconds the entrypoint may take, None (default) for no limit.
    grace: seconds between SIGTERM and SIGKILL once the time is over, default 10.
    result_max_bytes: largest result file accepted, default 65536.
    ticket: the submission id whose ticket allows the start, None (default) to start without one.
    """

    def __init__(self) -> None:
        self.ticket: str | None = None
        self.command: list[str] = []
        self.private_cwd = False
        self.copy_cwd = False
        self.job_timeout: float | None = None
        self.grace = DEFAULT_GRACE_SECONDS
        self.result_max_bytes = DEFAULT_RESULT_MAX_BYTES


def parse(arguments: list[str]) -> Options:
    """Read the runner's arguments (without the program's name).

    Everything after `--` belongs to the entrypoint, whatever it looks like.

    Raises UsageError.
    """
    options = Options()
    shell: str | None = None
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if name == "--":
            if not rest:
                raise UsageError("nothing to run after `--`")
            options.command, rest = rest, []
        elif name == "--private-cwd":
            options.private_cwd = True
        elif name == "--copy-cwd":
            options.copy_cwd = True
        elif name not in ("--shell", "--ticket", "--job-timeout", "--grace", "--result-max-bytes"):
            raise UsageError(
                f"unknown argument {name!r}; known are --private-cwd, --copy-cwd, --ticket, --job-timeout, "
                "--grace, --result-max-bytes, --shell and `--` before a program"
            )
        elif not rest:
            raise UsageError(f"{name} needs a value")
        elif name == "--shell":
            shell = rest.pop(0)
        elif name == "--ticket":
            options.ticket = rest.pop(0)
        else:
            _set_number(options, name, rest.pop(0))
    if options.private_cwd and options.copy_cwd:
        raise UsageError("give either --private-cwd or --copy-cwd")
    if (shell is None) == (not options.command):
        raise UsageError("give either --shell STRING or `--` and a program")
    if shell is not None:
        # The `--` keeps a string that begins with a dash from being read as an option of sh.
        options.command = ["/bin/sh", "-c", "--", shell]
    return options


def _set_number(options: Options, name: str, text: str) -> None:
    if name == "--result-max-bytes":
        options.result_max_bytes = _whole_bytes(name, text)
    elif name == "--grace":
        options.grace = _seconds(name, text)
    else:
        options.job_timeout = _seconds(name, text)
        if options.job_timeout == 0:
            raise UsageError(f"{name} is {text!r}; it must be more than 0 seconds")


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{name} is {text!r}; it must be a number of seconds, 0 or more")
    return seconds


def _whole_bytes(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) > LARGEST_RESULT_MAX_BYTES:
        raise UsageError(
            f"{name} is {text!r}; it must be a whole number from 0 to {LARGEST_RESULT_MAX_BYTES}"
        )
    return int(text)
