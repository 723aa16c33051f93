"""The life of an entrypoint: start, signals, time-out, end."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

from .child import Child, NotStarted
from .console import hide, say
from .ending import EXIT_JOB_TIMEOUT, EXIT_NOT_EXECUTABLE, Ending, Outcome
from .process_tree import ProcessTree
from .signals import FORWARDED, SignalQueue
from .witness import Witness

TYPE_CHECKING = False  # type checkers know the name; `typing` would slow the start of each job
if TYPE_CHECKING:
    from .masked_output import MaskedOutput
    from .masking import Mask

_POLL_SECONDS = 0.1
_LONGEST_KILL_SECONDS = 5.0  # a process in an uninterruptible wait does not die before it is over


def supervise(
    command: list[str],
    environment: Mapping[str, str],
    signals: SignalQueue,
    job_timeout: float | None,
    grace: float,
    mask: Mask | None = None,
) -> Ending:
    """Run the command until it ends or its time is over.

    The time counts until the entrypoint's own process ends; what it left behind is left to Ray.

    job_timeout, grace: seconds (see `arguments.Options`).
    mask: hides values in the output and in what the runner says; all output is written when this returns.
        None (default), or a mask without values: the entrypoint writes to the runner's own files.

    Raises child.NotStarted.
    """
    early = [number for number in signals.wait(0) if number in FORWARDED]
    if early:
        return Ending(Outcome.NOT_STARTED, signal=early[0])
    if not mask:
        return _run(command, environment, signals, job_timeout, grace)
    hide(mask.mask_text)
    output = _masked_output(mask)
    try:
        return _run(command, environment, signals, job_timeout, grace, output)
    finally:
        output.finish()


def _masked_output(mask: Mask) -> MaskedOutput:
    # Here and not on top, since few jobs have secrets.
    from .masked_output import MaskedOutput

    try:
        return MaskedOutput(mask)
    except (OSError, RuntimeError) as error:
        raise NotStarted(EXIT_NOT_EXECUTABLE, f"cannot mask the output: {error}") from None


def _run(
    command: list[str],
    environment: Mapping[str, str],
    signals: SignalQueue,
    job_timeout: float | None,
    grace: float,
    output: MaskedOutput | None = None,
) -> Ending:
    began = time.monotonic()
    child = Child(command, environment, None if output is None else output.writer)
    if output is not None:
        output.started()
    witness = Witness()
    try:
        _watch(child, witness, signals, None if job_timeout is None else began + job_timeout)
    finally:
        witness.close()
    if child.code is None:
        say(f"the job ran longer than its time-out of {job_timeout:g} s; stopping all its processes")
        _stop_all(child, signals, grace)
        return Ending(Outcome.JOB_TIMEOUT, exit_code=EXIT_JOB_TIMEOUT, seconds=time.monotonic() - began)
    seconds = time.monotonic() - began
    if child.code < 0:
        return Ending(Outcome.SIGNALED, signal=-child.code, seconds=seconds)
    return Ending(Outcome.EXITED, exit_code=child.code, seconds=seconds)


def _watch(child: Child, witness: Witness, signals: SignalQueue, deadline: float | None) -> None:
    """Wait for the child's end or the deadline, and forward signals that it did not get already."""
    while child.poll() is None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        for number in signals.wait(left):
            if number in FORWARDED and not witness.saw(number) and child.poll() is None:
                child.send(number)


def _stop_all(child: Child, signals: SignalQueue, grace: float) -> None:
    """SIGTERM to everything, SIGKILL after `grace` seconds to what is left."""
    tree = ProcessTree(child.pid)
    tree.send(signal.SIGTERM, tree.living())
    kill_at = time.monotonic() + grace
    give_up_at = kill_at + _LONGEST_KILL_SECONDS
    # Looked at on every round, for a process whose parent dies meanwhile is known only if it was seen before.
    while tree.living() or child.poll() is None:
        now = time.monotonic()
        if now >= give_up_at:
            say(f"{len(tree.living())} processes of the job did not die by SIGKILL")
            return
        if now >= kill_at:
            tree.send(signal.SIGKILL, tree.living())
        signals.wait(_POLL_SECONDS)
