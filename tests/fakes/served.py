"""The fake dashboard in a thread of its own, for what runs an event loop itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes.ray_server import FakeRay


@contextmanager
def served(**options: Any) -> Iterator[FakeRay]:
    """A :class:`FakeRay` that answers while this is open."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake ray", daemon=True)
    thread.start()
    fake = FakeRay(**options)
    asyncio.run_coroutine_threadsafe(fake.__aenter__(), loop).result(10)
    try:
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(fake.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
