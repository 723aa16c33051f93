"""HTTP to services on this machine: no proxy, always a time limit, standard library only."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_raytenant.local.errors import RequestRefused

# A proxy of the environment must not see requests to loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    """What a service answered: the HTTP status and the body."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    method: str,
    url: str,
    *,
    token: str | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 5.0,
) -> Answer:
    """Send a request, ``body`` as JSON; an error status is an answer as well.

    Raises ``OSError`` if nobody answers within ``timeout`` seconds, or answers what is not HTTP.
    """
    data = None if body is None else json.dumps(body).encode()
    all_headers = {"Accept": "application/json", **(headers or {})}
    if data is not None:
        all_headers["Content-Type"] = "application/json"
    if token is not None:
        all_headers["Authorization"] = f"Bearer {token}"
    call = urllib.request.Request(url, data=data, headers=all_headers, method=method)
    try:
        with _opener.open(call, timeout=timeout) as response:
            return Answer(response.status, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read())
    except http.client.HTTPException as error:
        raise ConnectionError(f"{method} {url}: {error!r}") from error


def request_json(method: str, url: str, **options: Any) -> Any:
    """Like ``request``, but returns the JSON of an answer below 400; raises ``RequestRefused`` otherwise."""
    answer = request(method, url, **options)
    if answer.status >= 400:
        raise RequestRefused(method, url, answer.status, answer.body.decode(errors="replace"))
    return answer.json() if answer.body else None


def answers(url: str, *, token: str | None = None, timeout: float = 2.0) -> bool:
    """Whether a GET is answered with 200."""
    try:
        return request("GET", url, token=token, timeout=timeout).status == 200
    except OSError:
        return False
