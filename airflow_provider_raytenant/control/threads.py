"""Blocking calls beside the event loop, in threads that never hold up the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from airflow_provider_raytenant.exceptions import DatabaseUnavailableError, RayTenantError

DATABASE_PATIENCE: Final = 30.0
"""Seconds for all that is asked of the database at a time."""

_MOST_CALLS: Final = 16
_CALLS: Final = threading.BoundedSemaphore(_MOST_CALLS)

_NAME: Final = "airflow's database"
_T = TypeVar("_T")


def waiting() -> bool:
    """Whether a call still waits for its answer."""
    return any(thread.name == _NAME for thread in threading.enumerate())


async def ask(call: Callable[[], _T], *, patience: float = DATABASE_PATIENCE) -> _T:
    """The answer of a call that speaks to Airflow's database.

    A thread that waits for a silent database cannot be cancelled, and those of ``asyncio.to_thread`` are
    waited for at the end of the process: hence daemon threads, a bounded number of them.

    :raises DatabaseUnavailableError: it took longer than ``patience``, or too many calls still wait.
    """
    if not _CALLS.acquire(blocking=False):
        raise DatabaseUnavailableError(
            f"Airflow's database: {_MOST_CALLS} earlier calls still wait for an answer"
        )
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(give: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            give(value)

    def work() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = (answer.set_result, call())
        except RayTenantError as error:
            outcome = (answer.set_exception, error)
        except BaseException as error:
            _tell(loop, settle, answer.set_exception, error)
            raise
        finally:
            _CALLS.release()
        _tell(loop, settle, *outcome)

    threading.Thread(target=work, name=_NAME, daemon=True).start()
    try:
        async with asyncio.timeout(patience):
            return await answer
    except TimeoutError as error:
        raise DatabaseUnavailableError(f"Airflow's database: no answer within {patience:g} s") from error


def _tell(loop: asyncio.AbstractEventLoop, *what: Any) -> None:
    try:
        loop.call_soon_threadsafe(*what)
    except RuntimeError:
        # The loop was closed meanwhile: nobody waits any more.
        return
