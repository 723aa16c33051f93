"""One request for everybody who asks the same question at about the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from airflow_provider_raytenant.exceptions import RayUnavailableError

_T = TypeVar("_T")


class SharedAnswer(Generic[_T]):
    """An answer and its age; belongs to one event loop.

    :param ask: makes the request.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._ask = ask
        self._last: tuple[float, _T] | None = None
        self._under_way: tuple[float, asyncio.Task[_T]] | None = None
        self._tasks: set[asyncio.Task[_T]] = set()

    async def get(self, max_age: float) -> _T:
        """An answer to a request that was sent at most ``max_age`` seconds before this call, or after it.

        Raises what the request raises, to everybody who waits for it; :class:`RayUnavailableError` when this
        is closed meanwhile.
        """
        oldest = asyncio.get_running_loop().time() - max_age
        if self._last is not None and self._last[0] >= oldest:
            return self._last[1]
        if self._under_way is None or self._under_way[0] < oldest:
            self._under_way = (oldest + max_age, asyncio.create_task(self._request(oldest + max_age)))
        task = self._under_way[1]
        try:
            # Whoever is cancelled takes nothing from the others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if task.cancelled() and me is not None and not me.cancelling():
                raise RayUnavailableError("the request was given up: its poller was closed") from None
            raise

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _request(self, now: float) -> _T:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._done)
        answer = await self._ask()
        if self._last is None or self._last[0] < now:
            self._last = (now, answer)
        return answer

    def _done(self, task: asyncio.Task[_T]) -> None:
        self._tasks.discard(task)
        if self._under_way is not None and self._under_way[1] is task:
            self._under_way = None
