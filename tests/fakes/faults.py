"""What can go wrong with one request to a fake server: a fault gets the request and its real handler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Fault = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]

HTML = "<html>\n<head><title>{status}</title></head>\n<body>{filler}</body>\n</html>\n"


async def passes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Nothing goes wrong: fills a place in a list of faults."""
    return await handler(request)


async def drop(request: web.Request, _handler: Handler) -> web.StreamResponse:
    """The connection breaks before the request has an effect.

    aiohttp's client repeats all but POST once by itself then, so the server may see two requests.
    """
    return _cut(request)


async def lose_answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The request takes effect, then the connection breaks."""
    await handler(request)
    return _cut(request)


async def truncate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The request takes effect; its JSON ends in the middle, and nothing tells so."""
    answer = await handler(request)
    body = _body(answer)
    return web.Response(body=body[: len(body) // 2], content_type="application/json")


async def break_off(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The request takes effect; the connection breaks in the middle of the answer."""
    body = _body(await handler(request))
    half = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await half.prepare(request)
    await half.write(body[: len(body) // 2])
    _cut(request)
    return half


async def already_exists(_request: web.Request, _handler: Handler) -> web.StreamResponse:
    """Ray's answer to a known submission id, though nothing is there."""
    return web.Response(status=500, text="Traceback: ValueError: Job with submission_id x already exists.")


async def hang(request: web.Request, _handler: Handler) -> web.StreamResponse:
    """No effect, and never an answer; it ends with the request's connection."""
    await asyncio.Event().wait()
    return _cut(request)


def delay(seconds: float) -> Fault:
    """The request takes effect, and the answer comes late."""

    async def late(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        await asyncio.sleep(seconds)
        return answer

    return late


def status(code: int, text: str | None = None, **headers: str) -> Fault:
    """No effect, and this status with an HTML page, or with ``text``."""
    page = HTML.format(status=code, filler="the proxy has no upstream " * 100)

    async def refused(_request: web.Request, _handler: Handler) -> web.StreamResponse:
        kind = "text/html" if text is None else "text/plain"
        return web.Response(
            status=code, text=page if text is None else text, content_type=kind, headers=headers
        )

    return refused


def answer(text: str, content_type: str = "application/json") -> Fault:
    """No effect, and this instead of an answer, with 200."""

    async def other(_request: web.Request, _handler: Handler) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type)

    return other


def dribble(size: int, stop: int | None = None, *, broken: bool = False) -> Fault:
    """A log file in pieces of ``size`` bytes; with ``stop`` so many bytes of it alone, as if they were all,
    or ``broken`` off there.
    """

    async def slow(request: web.Request, handler: Handler) -> web.StreamResponse:
        body = _body(await handler(request))[:stop]
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for start in range(0, len(body), size):
            await response.write(body[start : start + size])
            await asyncio.sleep(0)
        if broken:
            _cut(request)
        else:
            await response.write_eof()
        return response

    return slow


def _cut(request: web.Request) -> web.Response:
    """End the connection without another byte; what is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _body(response: web.StreamResponse) -> bytes:
    body = getattr(response, "body", b"")
    return body if isinstance(body, bytes) else b""
