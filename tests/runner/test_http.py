"""The runner's own requests, against servers that answer well and badly."""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import trustme

from airflow_provider_raytenant.runner.http import NoAnswer, ask

Serve = Callable[..., str]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    # urllib keeps the proxies that it found first, for the whole process.
    monkeypatch.setattr(urllib.request, "_opener", None)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(*pieces) answers each connection with these bytes, then closes; `asked` holds the requests."""
    servers: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def _serve(
        *pieces: bytes, asked: list[bytes] | None = None, context: ssl.SSLContext | None = None
    ) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        servers.append(listener)

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) if context else connection as one:
                        request = one.recv(65536)
                        if asked is not None:
                            asked.append(request)
                        for piece in pieces:
                            one.sendall(piece)
                except OSError:
                    continue

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield _serve
    for server in servers:
        # A listener that is only closed goes on waiting in `accept`.
        server.shutdown(socket.SHUT_RDWR)
        server.close()
    for thread in threads:
        thread.join(10)


def got(url: str, method: str = "GET", largest: int = 1000) -> tuple[int, bytes]:
    return ask(method, url, 10.0, largest)


def test_the_request_is_what_was_signed(serve: Serve) -> None:
    asked: list[bytes] = []
    url = serve(b"HTTP/1.1 204 No Content\r\n\r\n", asked=asked)
    assert got(f"{url}/b/k%20x?X-Amz-Signature=1%2F2", "DELETE") == (204, b"")
    host = url.removeprefix("http://")
    assert asked[0].startswith(f"DELETE /b/k%20x?X-Amz-Signature=1%2F2 HTTP/1.1\r\nHost: {host}\r\n".encode())
    assert asked[0].endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",),
        (b"HTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhel", b"lo and more"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b"hello"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", b"2;x=1\r\nlo\r\n0\r\n\r\n"),
        (b"HTTP/1.1 2", b"00 OK\r\nTransfer-Encoding: Chunked\r\n\r", b"\n5\r", b"\nhello\r", b"\n0\r\n\r\n"),
    ],
)
def test_a_body_comes_whole_however_it_is_sent(serve: Serve, pieces: tuple[bytes, ...]) -> None:
    assert got(serve(*pieces)) == (200, b"hello")


def test_an_error_is_an_answer(serve: Serve) -> None:
    body = b"<Error><Code>AccessDenied</Code></Error>"
    url = serve(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert got(url) == (403, body)


def test_no_more_is_read_than_wanted(serve: Serve) -> None:
    assert got(serve(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef"), largest=3) == (200, b"abc")
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"
    assert got(serve(chunked), largest=3) == (200, b"abc")


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"nothing of the kind\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 OK\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_what_is_broken_is_no_answer(serve: Serve, piece: bytes) -> None:
    with pytest.raises(NoAnswer):
        got(serve(piece))


def test_nobody_there_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        got(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("url", ["", "s3://b/k", "http://", "http://h/a b", "http://h/\r\nX: y", "file:///x"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        got(url)


def test_certificates_are_verified(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    url = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", context=context)
    secure = url.replace("http://", "https://")
    with pytest.raises(ssl.SSLCertVerificationError):
        got(secure)
    bundle = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    assert got(secure) == (200, b"ok")


def test_a_proxy_is_used_where_one_is_named(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    proxy = serve(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", asked=asked)
    monkeypatch.setenv("http_proxy", proxy)
    assert got("http://s3.internal:9000/b/k") == (404, b"")
    assert asked[0].startswith(b"GET http://s3.internal:9000/b/k HTTP/1.1")
