"""An asynchronous client of Ray's REST API with a time-out on every request.

Ray's own ``JobSubmissionClient`` blocks, has no time-outs and costs 35 MB and half a second to
import; a triggerer with a thousand waiting tasks can afford none of that.

What can be repeated without harm (reads, a stop, a delete, an upload of content-addressed data) is
repeated with backoff. A submit is not: its answer may be lost after it took effect, so
:meth:`RayClient.submit` looks for the job before it tries again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.usage import UsageSample
from airflow_provider_raytenant.exceptions import (
    JobNotFoundError,
    RayAuthError,
    RayRequestError,
    RayUnavailableError,
)
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.listing import Listing, job_of, parse_listing
from airflow_provider_raytenant.ray_api.nodes import parse_nodes
from airflow_provider_raytenant.ray_api.supervisors import PATH as SUPERVISORS
from airflow_provider_raytenant.ray_api.supervisors import parse_supervisors
from airflow_provider_raytenant.ray_api.usage import PATH as USAGE
from airflow_provider_raytenant.ray_api.usage import parse_usage

REQUEST_TIMEOUT = 15.0
"""Seconds for one request, answer included. Uploads and whole logs get :data:`TRANSFER_TIMEOUT`."""

TRANSFER_TIMEOUT = 120.0

ATTEMPTS = 4

CONNECTIONS = 300
"""Most connections at a time; no request holds one for long. Well below 1024, the open files that a process
often has."""

LARGE_ANSWER = 256 * 1024
"""Characters from which on an answer is read in a thread: more JSON holds the event loop for about 3 ms."""

_TRANSIENT_4XX = (408, 429)

WHOLE_LOG: Final = -1
"""Ray's word for all lines of a log file."""

LOG_FILE_TIMEOUT: Final = 30.0
"""Seconds after which Ray gives up to read a log file for us, so that a hung node does not hold one of the
hundred calls that Ray's state API answers at a time."""


def _json(text: str) -> Any:
    return json.loads(text) if text else {}


class RayClient:
    """Speaks to one dashboard; use it as an asynchronous context manager.

    Example::

        async with RayClient(endpoint) as ray:
            job = await ray.job("acme-etl-load-try1-0a1b")

    Every method raises :class:`RayAuthError` (401, 403), :class:`RayRequestError` (another 4xx) or
    :class:`RayUnavailableError` (no sound answer within the attempts).
    """

    def __init__(
        self,
        endpoint: RayEndpoint,
        *,
        timeout: float = REQUEST_TIMEOUT,
        attempts: int = ATTEMPTS,
        connections: int = CONNECTIONS,
    ):
        self.endpoint = endpoint
        self._timeout = timeout
        self._attempts = attempts
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make the client ready, in a running event loop. Nothing is sent yet.

        :raises ConnectionConfigError: a certificate file cannot be used.
        """
        connector = aiohttp.TCPConnector(ssl=self.endpoint.ssl(), limit=self._connections)
        self._session = aiohttp.ClientSession(connector=connector, headers=self.endpoint.request_headers())

    async def close(self) -> None:
        """Close all connections; requests under way end as if the dashboard had gone."""
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def version(self) -> dict[str, Any]:
        """``{"ray_version": "2.60.0", ...}`` of ``GET /api/version``."""
        return _mapping(await self._read("/api/version"))

    async def wants_token(self) -> bool:
        """Whether the cluster refuses a request that brings no token."""
        bare = RayClient(replace(self.endpoint, token=None), timeout=self._timeout, attempts=self._attempts)
        async with bare:
            try:
                await bare._read("/api/v0/nodes?limit=1")
            except RayAuthError:
                return True
        return False

    async def nodes(self) -> list[Node]:
        """The alive nodes with their totals and labels."""
        return parse_nodes(await self._read("/api/v0/nodes?detail=1&limit=10000"))

    async def job(self, submission_id: str) -> JobInfo:
        """One job.

        :raises JobNotFoundError: Ray does not know it.
        """
        return job_of(await self._read(f"/api/jobs/{submission_id}"))

    async def jobs(self) -> list[JobInfo]:
        """Every job that came through the jobs API, finished ones included (records never expire)."""
        listing = await self.listing()
        for error in listing.unsound.values():
            raise error
        return list(listing.jobs.values())

    async def listing(self) -> Listing:
        """The same as :meth:`jobs`, where a record that is not sound hides no other."""
        listing: Listing = await self._repeat("GET", "/api/jobs/", parse=parse_listing)
        return listing

    async def supervisors(self) -> frozenset[str]:
        """Submission ids of the jobs whose supervisor actor lives, by Ray's own book of actors.

        A job has one from the moment it is RUNNING until it has ended; a PENDING job has none. A supervisor
        that is killed is gone at once, those of a machine that dies within 16 s, and Ray's own FAILED follows
        a second or two later (measured on 2.60). What is missing does not live: an answer that may be a part
        of the whole is :class:`RayUnavailableError`.
        """
        return parse_supervisors(await self._read(SUPERVISORS))

    async def usage(self) -> UsageSample:
        """What the tasks and actors of every job held at most 15 s ago. One attempt."""
        sample: UsageSample = await self._request("GET", USAGE, parse=parse_usage)
        return sample

    async def submit(self, request: dict[str, Any]) -> bool:
        """Submit once: ``True`` if this call created the job, ``False`` if it was there already.

        Ray answers 500 for a known submission id, and may answer 500 or nothing after it took the
        job; so on anything but a clear answer the job is looked up, and only its absence allows
        another attempt.
        """
        created: bool = await self._retrying()(self._submit_or_find, request)
        return created

    async def stop(self, submission_id: str) -> bool:
        """Ask Ray to stop the job; ``False`` if it had ended already. The job ends a little later."""
        answer = await self._repeat("POST", f"/api/jobs/{submission_id}/stop")
        return bool(_mapping(answer).get("stopped"))

    async def delete(self, submission_id: str) -> bool:
        """Remove the record of a finished job."""
        return bool(_mapping(await self._repeat("DELETE", f"/api/jobs/{submission_id}")).get("deleted"))

    async def has_package(self, uri: str) -> bool:
        """Whether a ``gcs://`` package is on the cluster; asking pins it there for ten minutes."""
        try:
            await self._read(_package_path(uri))
        except RayRequestError as error:
            if error.details.get("status") == 404:
                return False
            raise
        return True

    async def put_package(self, uri: str, content: bytes) -> None:
        """Upload a package; the same content under the same name makes a repeat harmless."""
        await self._repeat("PUT", _package_path(uri), data=content, timeout=TRANSFER_TIMEOUT)

    async def logs(self, submission_id: str, *, largest: int | None = None) -> str:
        """All output of the driver so far, as Ray's text: CR and CRLF became LF.

        Ray answers 500 where the output is not UTF-8 (measured on 2.60).

        :param largest: bytes of the answer above which this is a :class:`RayRequestError`.
        """
        path = f"/api/jobs/{submission_id}/logs"
        answer = await self._repeat("GET", path, timeout=TRANSFER_TIMEOUT, largest=largest)
        return str(_mapping(answer).get("logs") or "")

    async def log_file(
        self, submission_id: str, node_id: str, *, lines: int = WHOLE_LOG
    ) -> AsyncGenerator[bytes, None]:
        """All output of the driver so far, as it is in the file on the driver's node, in pieces. One attempt.

        :param node_id: the node that the driver runs, or ran, on.
        :param lines: how many lines from the end; a last one without LF counts.
        """
        path = (
            f"/api/v0/logs/file?node_id={node_id}&filename=job-driver-{submission_id}.log"
            f"&lines={lines}&timeout={LOG_FILE_TIMEOUT:.0f}"
        )
        limit = aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=self._timeout)
        try:
            async with self._open().get(
                self.endpoint.url(path), timeout=limit, allow_redirects=False
            ) as response:
                if response.status != 200 or response.content_type != "text/plain":
                    text = await _text(response)
                    goal = response.headers.get("Location", "")
                    self._answer(response.status, text, path, goal, lambda _text: None)
                    raise RayUnavailableError(f"{self._where()} gave no log file, but {text[:200]!r}")
                async for piece in response.content.iter_any():
                    yield piece
        except TimeoutError as error:
            raise RayUnavailableError(
                f"{self._where()} went silent for {self._timeout:g} s (GET {path})"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise RayUnavailableError(f"{self._where()} cannot be reached: {_reason(error)}") from error

    async def _submit_or_find(self, request: dict[str, Any]) -> bool:
        try:
            await self._request("POST", "/api/jobs/", json=request)
        except RayUnavailableError:
            if await self._knows(request["submission_id"]):
                return False
            raise
        return True

    async def _knows(self, submission_id: str) -> bool:
        try:
            await self.job(submission_id)
        except JobNotFoundError:
            return False
        return True

    async def _read(self, path: str) -> Any:
        return await self._repeat("GET", path)

    async def _repeat(self, method: str, path: str, **options: Any) -> Any:
        return await self._retrying()(self._request, method, path, **options)

    def _retrying(self) -> AsyncRetrying:
        def worth_repeating(error: BaseException) -> bool:
            return isinstance(error, RayUnavailableError) and not isinstance(error, JobNotFoundError)

        return AsyncRetrying(
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=0.2, max=3),
            retry=retry_if_exception(worth_repeating),
            reraise=True,
        )

    async def _request(
        self,
        method: str,
        path: str,
        *,
        timeout: float | None = None,
        json: Any = None,
        data: Any = None,
        parse: Callable[[str], Any] = _json,
        largest: int | None = None,
    ) -> Any:
        limit = aiohttp.ClientTimeout(total=timeout or self._timeout)
        url = self.endpoint.url(path)
        try:
            # A redirect is not followed: it would turn a submit into a look at the list of jobs.
            async with self._open().request(
                method, url, json=json, data=data, timeout=limit, allow_redirects=False
            ) as response:
                text = await _text(response, largest)
                status, goal = response.status, response.headers.get("Location", "")
        except TimeoutError as error:
            raise RayUnavailableError(
                f"{self._where()} did not answer within {limit.total:g} s ({method} {path})"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise RayUnavailableError(f"{self._where()} cannot be reached: {_reason(error)}") from error
        if len(text) > LARGE_ANSWER:
            return await asyncio.to_thread(self._answer, status, text, path, goal, parse)
        return self._answer(status, text, path, goal, parse)

    def _answer(self, status: int, text: str, path: str, goal: str, parse: Callable[[str], Any]) -> Any:
        """The JSON of a good answer; an error of our tree for every other."""
        excerpt = " ".join(text[:1000].split())[:300]
        if status == 401:
            given = "the one given is not one" if self.endpoint.token else "the connection has none"
            raise RayAuthError(f"{self._where()} wants a token (401): {given}", status=status)
        if status == 403:
            raise RayAuthError(f"{self._where()} refuses the connection's token (403)", status=status)
        if status == 404 and path.startswith("/api/jobs/") and "does not exist" in text:
            raise JobNotFoundError(f"{self._where()} does not know this job: {excerpt}", status=status)
        if 400 <= status < 500 and status not in _TRANSIENT_4XX:
            raise RayRequestError(f"{self._where()} refused {path} ({status}): {excerpt}", status=status)
        if 300 <= status < 400 and goal:
            # What follows the path may be a secret of a login page.
            goal = goal.partition("?")[0].partition("#")[0][:200]
            raise RayUnavailableError(
                f"{self._where()} answered {status} and sends to {goal}; the connection needs an address "
                "that answers by itself",
                status=status,
            )
        if status >= 300:
            raise RayUnavailableError(f"{self._where()} answered {status}: {excerpt}", status=status)
        try:
            return parse(text)
        except ValueError:
            if path.startswith("/api/packages/"):
                return {}
            raise RayUnavailableError(f"{self._where()} gave no JSON for {path}: {excerpt!r}") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("RayClient is used outside of `async with`")
        return self._session

    def _where(self) -> str:
        return f"Ray at {self.endpoint.address}"


async def _text(response: aiohttp.ClientResponse, largest: int | None = None) -> str:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if largest is not None and len(body) > largest:
            raise RayRequestError(f"{response.url.path} gives more than {largest} bytes")
    return body.decode("utf-8", "replace")


def _package_path(uri: str) -> str:
    protocol, _, name = uri.partition("://")
    return f"/api/packages/{protocol}/{name}"


def _mapping(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise RayUnavailableError(f"Ray gave no JSON object, but {str(answer)[:200]!r}")
    return answer


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
