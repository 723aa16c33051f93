"""The runner from its arguments to its exit code."""

from __future__ import annotations

import os

from .arguments import Options, UsageError, parse
from .child import NotStarted
from .console import say, write
from .directories import PrivateDirectories
from .end_record import encode
from .ending import EXIT_NO_TICKET, EXIT_NOT_EXECUTABLE, EXIT_RESULT_REFUSED, EXIT_USAGE, Ending, Outcome
from .result import RESULT_PATH_VARIABLE, ResultRefused, read_result
from .signals import SignalQueue, die_by
from .supervise import supervise
from .ticket import CLAIM_VARIABLE, NoClaim, NoTicket, claim
from .working_copy import move_into_copy

TYPE_CHECKING = False  # `typing` would slow the start of each job
if TYPE_CHECKING:
    from .masking import Mask


def main(arguments: list[str]) -> int:
    """Run the entrypoint that the arguments name, then write the end record to stdout.

    Returns the exit code: the entrypoint's own; 2 for wrong arguments, 65 for a refused result, 77 without
    a ticket, 124 after the time-out, 126 and 127 when it could not be started. Where a signal ended the
    entrypoint this process ends by the same one, or returns 128 + its number where it cannot.
    """
    ending = _run(arguments)
    write(1, encode(ending.record()).encode("ascii"))
    if ending.exit_code is not None:
        return ending.exit_code
    number = ending.signal or 0
    die_by(number)
    return 128 + number


def _run(arguments: list[str]) -> Ending:
    signals = SignalQueue()
    directories = PrivateDirectories()
    try:
        return _run_in(directories, signals, parse(arguments))
    except UsageError as error:
        say(str(error))
        return Ending(Outcome.NOT_STARTED, exit_code=EXIT_USAGE)
    except NoTicket as error:
        say(str(error))
        return Ending(Outcome.NO_TICKET, exit_code=EXIT_NO_TICKET)
    except NoClaim as error:
        say(str(error))
        return Ending(Outcome.NO_CLAIM, exit_code=EXIT_NO_TICKET)
    except NotStarted as error:
        say(str(error))
        return Ending(Outcome.NOT_STARTED, exit_code=error.exit_code)
    finally:
        directories.remove()


def _run_in(directories: PrivateDirectories, signals: SignalQueue, options: Options) -> Ending:
    if options.ticket is not None:
        claim(options.ticket)
    environment = dict(os.environ)
    url = environment.pop(CLAIM_VARIABLE, None)
    if url is None:
        return _run_entrypoint(directories, signals, options, environment)
    # Here and not on top, since most jobs were granted nothing.
    from .granted import Granted

    try:
        granted = Granted(url)
    except OSError as error:
        raise NotStarted(EXIT_NOT_EXECUTABLE, f"cannot make a private directory: {error}") from None
    with granted:
        granted.apply(environment)
        ending = _run_entrypoint(directories, signals, options, environment, granted.mask)
        ending.extra = {name: granted.mask.mask_json(value) for name, value in ending.extra.items()}
        return ending


def _run_entrypoint(
    directories: PrivateDirectories,
    signals: SignalQueue,
    options: Options,
    environment: dict[str, str],
    mask: Mask | None = None,
) -> Ending:
    try:
        result_path = os.path.join(directories.make("result"), "result.json")
        if options.private_cwd:
            environment["PWD"] = directories.make("cwd")
            os.chdir(environment["PWD"])
        elif options.copy_cwd:
            move_into_copy(directories.make("cwd"), environment)
    except OSError as error:
        raise NotStarted(EXIT_NOT_EXECUTABLE, f"cannot make a private directory: {error}") from None
    environment[RESULT_PATH_VARIABLE] = result_path
    ending = supervise(options.command, environment, signals, options.job_timeout, options.grace, mask)
    if ending.exit_code == 0:
        _add_result(ending, result_path, options.result_max_bytes)
    return ending


def _add_result(ending: Ending, path: str, max_bytes: int) -> None:
    try:
        ending.extra = read_result(path, max_bytes)
    except ResultRefused as error:
        say(str(error))
        ending.exit_code = EXIT_RESULT_REFUSED
        ending.extra = {"result_error": error.record()}
