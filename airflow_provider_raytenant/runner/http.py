"""One request over HTTP/1.1, with its answer whole.

By hand, because `urllib.request` and `http.client` take 40 ms to import: every job with a claim would pay it
for two small requests. Where a proxy is to be used, `urllib` does it.
"""

from __future__ import annotations

import os
import socket

_LARGEST_HEAD = 64 * 1024


class NoAnswer(OSError):
    """Nothing that is HTTP came back."""


def ask(method: str, url: str, timeout: float, largest: int) -> tuple[int, bytes]:
    """Status and body.

    timeout: seconds for each step (to connect, to send, each read).
    largest: bytes of a body that are read at most; the rest is left.

    Raises OSError, ValueError for an address that is none. No redirect is followed.
    """
    scheme, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    if scheme not in ("http", "https") or not place or any(c <= " " for c in url):
        raise ValueError("no address of http or https")
    if _wants_proxy(scheme):
        return _ask_by_urllib(method, url, timeout, largest)
    host, port = _host_and_port(place, 443 if scheme == "https" else 80)
    lines = (f"{method} /{path} HTTP/1.1", f"Host: {place}", "Connection: close", "Accept: */*", "", "")
    with socket.create_connection((host, port), timeout) as plain:
        connection = _secured(plain, host) if scheme == "https" else plain
        connection.sendall("\r\n".join(lines).encode("ascii"))
        return _read(connection, largest)


def _host_and_port(place: str, default: int) -> tuple[str, int]:
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        return host, int(port[1:]) if port else default
    host, _, port = place.partition(":")
    return host, int(port) if port else default


def _secured(plain: socket.socket, host: str) -> socket.socket:
    # Here and not on top: 15 ms.
    import ssl

    context = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
    return context.wrap_socket(plain, server_hostname=host)


def _read(connection: socket.socket, largest: int) -> tuple[int, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part or len(data) > _LARGEST_HEAD:
            raise NoAnswer("the answer is not HTTP")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    status, headers = _headers(head)
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return status, _chunks(connection, body, largest)
    # The connection ends with the answer, whether a length is given or not.
    length = int(headers.get("content-length", largest))
    if status in (204, 304):
        length = 0
    while len(body) < min(length, largest):
        part = connection.recv(65536)
        if not part:
            if "content-length" in headers:
                raise NoAnswer("the answer was cut off")
            break
        body += part
    return status, body[: min(length, largest)]


def _headers(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise NoAnswer("the answer is not HTTP")
    pairs = (line.partition(":") for line in lines)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _chunks(connection: socket.socket, data: bytes, largest: int) -> bytes:
    body = b""
    while len(body) <= largest:
        while b"\r\n" not in data:
            data += _more(connection)
        size, _, data = data.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if length == 0:
            return body
        while len(data) < length + 2:
            data += _more(connection)
        body, data = body + data[:length], data[length + 2 :]
    return body[:largest]


def _more(connection: socket.socket) -> bytes:
    part = connection.recv(65536)
    if not part:
        raise NoAnswer("the answer was cut off")
    return part


def _wants_proxy(scheme: str) -> bool:
    names = (f"{scheme}_proxy", "all_proxy")
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in names)


def _ask_by_urllib(method: str, url: str, timeout: float, largest: int) -> tuple[int, bytes]:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=timeout) as answer:
            return int(answer.status), answer.read(largest)
    except urllib.error.HTTPError as error:
        return int(error.code), b""
