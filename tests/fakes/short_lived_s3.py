"""S3 and STS in one small server whose credentials live for seconds, which no real server allows.

It knows AssumeRole, GET, PUT and DELETE of objects, and the batch delete. It asks for credentials that are
its own, alive, and good for the prefix that their session policy names. It does not check signatures: that is
what the tests with a real server are for.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from xml.sax.saxutils import escape

_WHOLE = '{"Statement": [{"Resource": ["arn:aws:s3:::*"]}]}'
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")


@dataclass(frozen=True)
class Session:
    """What AssumeRole gave: alive until ``expires`` (seconds since the epoch), for keys below ``prefix``."""

    expires: float
    prefix: str


@dataclass
class ShortLivedS3:
    """A running server; a context manager that stops it.

    :param life: seconds that credentials live.
    """

    life: float
    objects: dict[str, bytes] = field(default_factory=dict)
    """By ``bucket/key``."""
    sessions: dict[str, Session] = field(default_factory=dict)
    """By access key, in the order in which they were given."""
    refused: list[str] = field(default_factory=list)
    """What was refused, and why."""
    requests: list[str] = field(default_factory=list)
    """Method and what for, in their order."""
    narrows: bool = True
    """Whether it keeps to the prefix; without, a session has the whole role."""
    answers_nothing: bool = False
    """Answer 503 to everything: an outage."""

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"s3": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def connection(self) -> str:
        """The Airflow connection to it, as JSON."""
        extra = {"endpoint_url": self.url, "region_name": "us-east-1"}
        return json.dumps({"conn_type": "aws", "login": "keeper", "password": "keeper-key", "extra": extra})

    def assume(self, policy: str) -> str:
        """A session as STS writes it."""
        resource = json.loads(policy)["Statement"][0]["Resource"][0]
        prefix = resource.removeprefix("arn:aws:s3:::").removesuffix("*")
        key, expires = f"SHORT{secrets.token_hex(6)}", time.time() + self.life
        self.sessions[key] = Session(expires, prefix)
        ends = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secrets.token_hex(20)}</SecretAccessKey>"
            f"<SessionToken>{secrets.token_hex(40)}</SessionToken><Expiration>{ends}</Expiration>"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )

    def why_refused(self, access_key: str, name: str) -> str | None:
        """Why these credentials may not touch an object; ``None`` where they may."""
        session = self.sessions.get(access_key)
        if session is None:
            return "InvalidAccessKeyId"
        if time.time() > session.expires:
            return "ExpiredToken"
        return None if name.startswith(session.prefix) or not self.narrows else "AccessDenied"


class _Handler(BaseHTTPRequestHandler):
    s3: ShortLivedS3
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query, keep_blank_values=True)
        if "list-type" in query:
            bucket = self.path.partition("?")[0].strip("/")
            if self._allowed_name(f"{bucket}/{query['prefix'][0]}") is not None:
                self._answer(200, b"<ListBucketResult/>")
            return
        name = self._allowed_name()
        if name is not None:
            body = self.s3.objects.get(name)
            self._answer(404, _error("NoSuchKey")) if body is None else self._answer(200, body)

    def do_PUT(self) -> None:
        body = self._body()
        name = self._allowed_name()
        if name is not None:
            self.s3.objects[name] = body
            self._answer(200)

    def do_DELETE(self) -> None:
        name = self._allowed_name()
        if name is not None:
            self.s3.objects.pop(name, None)
            self._answer(204)

    def do_POST(self) -> None:
        body = self._body()
        if self._is_out():
            return
        form = urllib.parse.parse_qs(body.decode(errors="replace"))
        if form.get("Action") == ["AssumeRole"]:
            self.s3.requests.append("POST AssumeRole")
            if self._access_key() in self.s3.sessions and self.s3.narrows:
                self._refuse("AccessDenied", "AssumeRole")
                return
            self._answer(200, self.s3.assume(form.get("Policy", [_WHOLE])[0]).encode())
            return
        bucket = self.path.partition("?")[0].strip("/")
        self.s3.requests.append(f"POST {bucket}?delete")
        for key in re.findall(r"<Key>([^<]+)</Key>", body.decode()):
            reason = self.s3.why_refused(self._access_key(), f"{bucket}/{key}")
            if reason is not None:
                self._refuse(reason, f"{bucket}/{key}")
                return
            self.s3.objects.pop(f"{bucket}/{key}", None)
        self._answer(200, b"<DeleteResult/>")

    def _allowed_name(self, name: str | None = None) -> str | None:
        if self._is_out():
            return None
        name = name or urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/")
        self.s3.requests.append(f"{self.command} {name}")
        reason = self.s3.why_refused(self._access_key(), name)
        if reason is not None:
            self._refuse(reason, name)
            return None
        return name

    def _is_out(self) -> bool:
        if self.s3.answers_nothing:
            self._answer(503, _error("SlowDown"))
        return self.s3.answers_nothing

    def _access_key(self) -> str:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if "X-Amz-Credential" in query:
            return query["X-Amz-Credential"][0].split("/")[0]
        found = _CREDENTIAL.search(self.headers.get("Authorization", ""))
        return found[1] if found else ""

    def _refuse(self, reason: str, name: str) -> None:
        self.s3.refused.append(f"{reason} {self.command} {name}")
        self._answer(403, _error(reason))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on the terminal."""


def _error(code: str) -> bytes:
    return f"<Error><Code>{escape(code)}</Code><Message>{escape(code)}</Message></Error>".encode()
