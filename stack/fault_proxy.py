"""A reverse proxy before Ray's dashboard that breaks what passes through it, as it is told.

It passes on whole answers, which is all that the provider asks for: no websockets, no endless streams.

Each user of the proxy gets a *lane*: the first part of the path, so that an Airflow connection whose host is
``proxy.address("acme")`` meets the faults of lane ``acme`` and no others.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp import web

Forward = Callable[[web.Request], Awaitable[web.StreamResponse]]
Effect = Callable[[web.Request, Forward], Awaitable[web.StreamResponse]]
"""What happens to a request: it gets the request and the way to Ray, and returns the answer."""

_START_TIMEOUT = 30.0
_HOP: Final = {"host", "connection", "upgrade", "content-length", "transfer-encoding", "keep-alive"}


@dataclass
class Rule:
    """Which requests an effect befalls.

    :param method: a regular expression that the whole method must match, ``"GET|POST"``.
    :param path: one that must be found in the path behind the lane, ``"^/api/jobs/$"``; the query belongs
        to the path.
    :param lane: the lane; ``None`` is every lane.
    :param text: what must stand in the path or in the body, ``"acme-etl-load-try1"``.
    :param times: for how many requests; ``None`` is until :meth:`lift`.
    """

    effect: Effect
    method: str = ".*"
    path: str = ""
    lane: str | None = None
    text: str = ""
    times: int | None = None
    hits: int = 0
    lifted: bool = False
    _struck: threading.Event = field(default_factory=threading.Event, repr=False)

    def lift(self) -> None:
        """Nothing new is befallen from now on."""
        self.lifted = True

    def wait_struck(self, timeout: float) -> bool:
        """Wait in another thread until the rule has befallen a request; whether it has."""
        return self._struck.wait(timeout)

    def _takes(self, lane: str, method: str, path: str, body: bytes) -> bool:
        fits = (
            not self.lifted
            and (self.times is None or self.hits < self.times)
            and self.lane in (None, lane)
            and re.fullmatch(self.method, method) is not None
            and re.search(self.path, path) is not None
            and (self.text in path or self.text.encode() in body)
        )
        if fits:
            self.hits += 1
        return fits

    def _strike(self) -> None:
        self._struck.set()


class Hold:
    """An effect that keeps a request until it is released, by another thread.

    :param forwarded: whether Ray sees the request before it is kept, so that it is the answer that waits.
    """

    def __init__(self, *, forwarded: bool) -> None:
        self._forwarded = forwarded
        self._kept = threading.Event()
        self._dropped = False
        self._released = threading.Event()

    async def __call__(self, request: web.Request, forward: Forward) -> web.StreamResponse:
        answer = await forward(request) if self._forwarded else None
        self._kept.set()
        while not self._released.is_set():
            await asyncio.sleep(0.05)
        if self._dropped:
            return cut(request)
        return answer if answer is not None else await forward(request)

    def wait_kept(self, timeout: float) -> bool:
        """Wait until a request is kept; whether one is."""
        return self._kept.wait(timeout)

    def release(self) -> None:
        """Let the request go on its way, and all that come later."""
        self._released.set()

    def drop(self) -> None:
        """Break the connection of the request: it never goes on its way."""
        self._dropped = True
        self._released.set()


async def duplicate(request: web.Request, forward: Forward) -> web.StreamResponse:
    """Ray gets the request twice, one right after the other; the second answer is the one that is told."""
    await forward(request)
    return await forward(request)


async def unreachable(request: web.Request, _forward: Forward) -> web.StreamResponse:
    """The connection breaks before Ray sees anything."""
    return cut(request)


def cut(request: web.Request) -> web.StreamResponse:
    """End the connection without another byte; what is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class FaultProxy:
    """Serves ``target`` in a thread of its own; a context manager, used from other threads.

    What went through is counted: :meth:`count`. While Ray itself cannot be reached, connections break.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._rules: list[Rule] = []
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()
        self._port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    def address(self, lane: str) -> str:
        """What an Airflow connection has as its host."""
        return f"http://127.0.0.1:{self._port}/{lane}"

    def add(self, rule: Rule) -> Rule:
        """Put a rule to work; of several that fit a request, the oldest befalls it."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def count(self, lane: str, method: str = ".*", path: str = "") -> int:
        """How many requests of a lane came so far; ``method`` and ``path`` as in :class:`Rule`."""
        with self._lock:
            return sum(
                number
                for (own, verb, where), number in self._seen.items()
                if own == lane and re.fullmatch(method, verb) and re.search(path, where)
            )

    def start(self) -> None:
        """Start to serve, on a port of the kernel's; raises ``TimeoutError``."""
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT):
            raise TimeoutError(f"the proxy did not start within {_START_TIMEOUT:g} s")

    def stop(self) -> None:
        """End it; requests that are kept or hang break off."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(_START_TIMEOUT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        # Ray's own time limits are longer than those of its clients: none here.
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = aiohttp.ClientSession(auto_decompress=False, connector=connector, timeout=timeout)
        async with session as self._session:
            app = web.Application(client_max_size=1024**3)
            app.router.add_route("*", "/{lane}/{rest:.*}", self._handle)
            runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._port = runner.addresses[0][1]
            self._ready.set()
            await self._ended.wait()
            await runner.cleanup()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        lane = request.match_info["lane"]
        path = request.path_qs.removeprefix(f"/{lane}")
        body = await request.read()
        with self._lock:
            self._seen[(lane, request.method, path)] += 1
            rule = next((each for each in self._rules if each._takes(lane, request.method, path, body)), None)

        async def forward(passed: web.Request) -> web.StreamResponse:
            return await self._forward(passed, path, body)

        if rule is None:
            return await forward(request)
        rule._strike()
        return await rule.effect(request, forward)

    async def _forward(self, request: web.Request, path: str, body: bytes) -> web.StreamResponse:
        try:
            call = self._session.request(
                request.method,
                self._target + path,
                headers=_passed_on(request.headers.items()),
                data=body or None,
                allow_redirects=False,
            )
            async with call as answer:
                headers = _passed_on(answer.headers.items())
                return web.Response(status=answer.status, body=await answer.read(), headers=headers)
        except (aiohttp.ClientError, OSError):
            return cut(request)


def _passed_on(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: text for name, text in headers if name.lower() not in _HOP}
