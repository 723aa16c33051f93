"""A tiny reverse proxy that serves another server's pages below a path prefix, websockets included."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

_OWN = {"host", "connection", "upgrade", "content-length", "transfer-encoding", "keep-alive"}


def _passed_on(headers: object) -> dict[str, str]:
    pairs = dict(headers)  # type: ignore[call-overload]
    return {
        name: text
        for name, text in pairs.items()
        if name.lower() not in _OWN and not name.lower().startswith("sec-websocket")
    }


class PrefixProxy:
    """Serves ``target`` below ``prefix`` (which begins with a slash); an asynchronous context manager."""

    def __init__(self, target: str, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self.address = ""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=200 * 1024**2)
        app.router.add_route("*", self._prefix + "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}{self._prefix}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        url = self._target + request.path_qs.removeprefix(self._prefix)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._pass_socket(request, url)
        call = self._session.request(
            request.method,
            url,
            headers=_passed_on(request.headers),
            data=await request.read(),
            allow_redirects=False,
        )
        async with call as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), headers=_passed_on(answer.headers)
            )

    async def _pass_socket(self, request: web.Request, url: str) -> web.StreamResponse:
        try:
            async with self._session.ws_connect(url, headers=_passed_on(request.headers)) as behind:
                front = web.WebSocketResponse()
                await front.prepare(request)
                async for message in behind:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        await front.send_str(message.data)
                return front
        except aiohttp.WSServerHandshakeError as error:
            return web.Response(status=error.status, text=error.message)
