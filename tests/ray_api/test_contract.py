"""The fake dashboard and a real cluster answer our client alike, directly and behind a path prefix.

What holds here for both lets the other tests of this folder speak to the fake alone.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from asyncio.selector_events import BaseSelectorEventLoop
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_raytenant.domain.lifecycle import Limits
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobNotFoundError,
    JobStoppedError,
    RayAuthError,
    RayRequestError,
    RayUnavailableError,
    ResultLostError,
)
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.log_follower import LogFollower
from airflow_provider_raytenant.ray_api.log_reads import LogReads
from airflow_provider_raytenant.ray_api.stopping import stop_job
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings
from tests.fakes.ray_server import GIB
from tests.ray_api.contract import BOUND_SECONDS, TOKEN, Contract, opened
from tests.ray_api.watching import shared


async def log_file(client: RayClient, submission_id: str, node_id: str | None, **options: int) -> bytes:
    async with asyncio.timeout(BOUND_SECONDS):
        pieces = client.log_file(submission_id, node_id or "", **options)
        return b"".join([piece async for piece in pieces])


async def test_version(ray: Contract) -> None:
    version = await ray.client.version()
    assert tuple(map(int, version["ray_version"].split(".")[:2])) >= (2, 60)


async def test_nodes(ray: Contract) -> None:
    (head,) = await ray.client.nodes()

    assert head.is_head
    assert (head.total.cpus, head.total.memory, head.total.gpus) == (2, GIB, 0)
    assert dict(head.total.custom) == {}
    assert head.labels["ray.io/node-id"] == head.node_id


async def test_who_is_let_in(ray: Contract) -> None:
    assert await ray.client.wants_token()
    for token, status in ((None, 401), ("a-wrong-one", 403)):
        async with RayClient(replace(ray.endpoint, token=token)) as stranger:
            request = ray.request("echo hello")
            calls = [
                stranger.version(),
                stranger.nodes(),
                stranger.jobs(),
                stranger.job("x"),
                stranger.stop("x"),
            ]
            calls += [stranger.submit(request), stranger.has_package("gcs://_ray_pkg_x.zip")]
            for call in calls:
                with pytest.raises(RayAuthError) as caught:
                    await call
                assert caught.value.details == {"status": status}
            with pytest.raises(RayAuthError, match=str(status)):
                await log_file(stranger, "x", "y")
            with pytest.raises(JobNotFoundError):
                await ray.client.job(request["submission_id"])


@pytest.mark.parametrize("call", ["job", "stop", "delete", "logs"])
async def test_an_unknown_job(ray: Contract, call: str) -> None:
    with pytest.raises(JobNotFoundError, match="does not exist"):
        await getattr(ray.client, call)("nobody-knows-me")


async def test_a_job_from_submit_to_delete(ray: Contract) -> None:
    metadata = {"raytenant.tenant": "acme", "raytenant.dag_id": "ä 日本"}
    request = ray.request("echo hello  wörld 🚀", metadata=metadata)
    name = request["submission_id"]
    assert await ray.client.submit(request) is True
    assert await ray.client.submit(request) is False

    (listed,) = [job for job in await ray.client.jobs() if job.submission_id == name]
    assert listed.metadata == metadata
    assert listed.entrypoint == request["entrypoint"]

    job = await ray.ended(name)
    assert (job.status, job.exit_code, job.error_type) == (JobStatus.SUCCEEDED, 0, None)
    assert job.metadata == metadata
    assert job.driver_node_id == (await ray.client.nodes())[0].node_id
    assert job.start_time is not None
    assert job.end_time is not None
    assert 1_600_000_000_000 < job.start_time < job.end_time

    logs = await ray.client.logs(name)
    assert "wörld 🚀\n" in logs
    assert await log_file(ray.client, name, job.driver_node_id) == logs.encode()

    assert await ray.client.submit(request) is False
    assert await ray.client.stop(name) is False
    assert (await ray.client.job(name)).status is JobStatus.SUCCEEDED
    assert await ray.client.delete(name) is True
    with pytest.raises(JobNotFoundError):
        await ray.client.job(name)


async def test_a_job_that_fails(ray: Contract) -> None:
    job = await ray.ended(await ray.submit("exit 3"))

    assert (job.status, job.exit_code) == (JobStatus.FAILED, 3)
    assert job.message


async def test_a_job_that_is_stopped(ray: Contract) -> None:
    name = await ray.submit("sleep 600")
    await ray.until(name, JobStatus.RUNNING)
    with pytest.raises(RayUnavailableError) as caught:
        await ray.client.delete(name)
    assert caught.value.details == {"status": 500}

    assert await ray.client.stop(name) is True
    job = await ray.ended(name)
    assert (job.status, job.exit_code) == (JobStatus.STOPPED, None)
    assert await ray.client.stop(name) is False


async def test_the_log_file_is_as_it_was_written(ray: Contract) -> None:
    entrypoint = r"printf '10%%\r20%%\rdone\r\n\ttab\303\244\n\n\377 no utf8\n  last without end'"
    # Ray may write its "Running entrypoint" behind what a job writes in its first moment.
    job = await ray.ended(await ray.submit(f"sleep 1; {entrypoint}" if ray.real else entrypoint))
    written = "10%\r20%\rdone\r\n\ttabä\n\n".encode() + b"\xff no utf8\n  last without end"
    name, node_id = job.submission_id, job.driver_node_id

    assert (await log_file(ray.client, name, node_id)).endswith(b"\n" + written)
    assert await log_file(ray.client, name, node_id, lines=1) == b"  last without end"
    assert await log_file(ray.client, name, node_id, lines=2) == b"\xff no utf8\n  last without end"
    assert await log_file(ray.client, name, node_id, lines=5) == written
    # Why the text is the second choice.
    with pytest.raises(RayUnavailableError, match="500"):
        await ray.client.logs(name)


async def test_a_log_file_that_is_not_there(ray: Contract) -> None:
    name = await ray.submit("sleep 600")
    job = await ray.until(name, JobStatus.RUNNING)
    with pytest.raises(RayUnavailableError, match=r"500.*not found"):
        await log_file(ray.client, "nobody-knows-me", job.driver_node_id)
    with pytest.raises(RayUnavailableError, match=r"500.*doesn't exist"):
        await log_file(ray.client, name, "a" * 56)
    # A job that still runs is read up to now.
    assert b"Running entrypoint" in await log_file(ray.client, name, job.driver_node_id)


@pytest.mark.parametrize(
    "wrong",
    [{"priority": 1}, {"entrypoint": None}, {"entrypoint_num_cpus": "two"}, {"metadata": {"a": 1}}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_wrong_submit(ray: Contract, wrong: dict[str, Any]) -> None:
    request = {**ray.request("echo hello"), **wrong}
    with pytest.raises(RayRequestError) as caught:
        await ray.client.submit(request)

    assert caught.value.details == {"status": 400}
    with pytest.raises(JobNotFoundError):
        await ray.client.job(request["submission_id"])


async def test_packages(ray: Contract) -> None:
    uri = f"gcs://_ray_pkg_{uuid.uuid4().hex}.zip"

    assert not await ray.client.has_package(uri)
    await ray.client.put_package(uri, bytes(range(256)) * 20_000)
    assert await ray.client.has_package(uri)
    await ray.client.put_package(uri, bytes(range(256)) * 20_000)
    assert await ray.client.has_package(uri)


async def test_a_browser_would_be_sent_away(ray: Contract) -> None:
    """Why our User-Agent stands above whatever headers a connection brings."""
    endpoint = replace(ray.endpoint, headers={"user-agent": "Mozilla/5.0"})
    request = ray.request("exit 0")
    async with RayClient(endpoint) as client:
        assert await client.submit(request) is True

    class Browser(RayEndpoint):
        def request_headers(self) -> dict[str, str]:
            return {**super().request_headers(), "User-Agent": "Mozilla/5.0"}

    async with RayClient(Browser(ray.endpoint.address, token=TOKEN)) as browser:
        assert await browser.job(request["submission_id"])
        with pytest.raises(RayRequestError) as caught:
            await browser.stop(request["submission_id"])
        assert caught.value.details == {"status": 405}


async def test_a_watch(ray: Contract) -> None:
    said: list[str] = []
    lines: list[str] = []
    request = ray.request("echo hello")
    outcome = await asyncio.wait_for(
        JobWatch(
            shared(ray.client), request, WatchSettings(Limits(poll_interval=0.1)), lines.append, said.append
        ).run(),
        BOUND_SECONDS,
    )

    # The runner is not around this job, so nothing says whether it had a result.
    assert isinstance(outcome.error, ResultLostError)
    assert "hello" in lines
    assert said[0] == f"Job {request['submission_id']} submitted."
    assert said[-1] == f"Job {request['submission_id']} is SUCCEEDED."


@pytest.mark.stack
async def test_a_real_job_behind_a_prefix(cluster: RayCluster) -> None:
    """Submit, stop and log through a proxy; lines come while the job runs."""
    async with AsyncExitStack() as stack:
        ray = await opened(stack, cluster.dashboard_url, True)
        lines: list[str] = []
        request = ray.request("echo begin; sleep 600")
        watch = JobWatch(
            shared(ray.client), request, WatchSettings(Limits(poll_interval=0.1)), lines.append, lines.append
        )
        watching = asyncio.create_task(watch.run())
        async with asyncio.timeout(BOUND_SECONDS):
            while "begin" not in lines:
                await asyncio.sleep(0.05)
        assert not watching.done()
        assert await stop_job(ray.client, request["submission_id"], patience=30)
        outcome = await asyncio.wait_for(watching, BOUND_SECONDS)

    assert isinstance(outcome.error, JobStoppedError)
    assert lines.count("begin") == 1


WRITER = r"""
import sys, time
out = sys.stdout.buffer
for number in range(20):
    out.write(b"%d%%\r" % number if number % 3 else b"  step %d of 20\r\n" % number)
    out.write("\t\u00e4\u65e5\U0001f680\n".encode() + b"\xff" * (number % 2))
    out.flush()
    time.sleep(0.1)
out.write(b"\n" + b"x" * 1_000_000 + b"\nlast without end")
"""


@pytest.fixture
def reached(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """Addresses that a connection was made to; only the dashboard's own can be reached."""
    found: set[Any] = set()
    connect = BaseSelectorEventLoop.sock_connect

    async def guarded(self: BaseSelectorEventLoop, sock: Any, address: Any) -> None:
        found.add(address)
        if address[1] != cluster.dashboard_port:
            raise OSError(f"{address} is blocked in this test")
        await connect(self, sock, address)

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", guarded)
    return found


@pytest.mark.stack
async def test_a_real_job_is_followed_line_by_line(cluster: RayCluster, reached: set[Any]) -> None:
    async with AsyncExitStack() as stack:
        ray = await opened(stack, cluster.dashboard_url, False)
        code = base64.b64encode(WRITER.encode()).decode()
        name = await ray.submit(f"python3 -c \"import base64; exec(base64.b64decode('{code}'))\"")
        job = await ray.until(name, JobStatus.RUNNING)
        lines: list[str] = []
        follower = LogFollower(ray.client, name, lines.append, pytest.fail, reads=LogReads())
        follower.start(job.driver_node_id)
        async with asyncio.timeout(BOUND_SECONDS):
            while "  step 3 of 20\r" not in lines:
                assert not (await ray.client.job(name)).status.is_terminal
                await asyncio.sleep(0.05)
        await ray.ended(name)
        await follower.finish(job.driver_node_id)
        whole = await log_file(ray.client, name, job.driver_node_id)

    assert lines == whole.decode("utf-8", "replace").split("\n")
    assert lines[-2:] == ["x" * 1_000_000, "last without end"]
    assert len(whole) > 1_000_400
    assert reached == {("127.0.0.1", cluster.dashboard_port)}


@pytest.mark.stack
async def test_readings_that_were_cut_off_hold_nothing(cluster: RayCluster) -> None:
    """More than the hundred calls that the state API allows at a time, each given up in the middle."""
    async with AsyncExitStack() as stack:
        ray = await opened(stack, cluster.dashboard_url, False)
        name = await ray.submit("head -c 8000000 /dev/zero | tr '\\0' x; echo; sleep 600")
        node_id = (await ray.until(name, JobStatus.RUNNING)).driver_node_id or ""
        async with asyncio.timeout(BOUND_SECONDS):
            while len(await log_file(ray.client, name, node_id)) < 8_000_000:
                await asyncio.sleep(0.1)
            for _ in range(120):
                async with aclosing(ray.client.log_file(name, node_id)) as pieces:
                    assert await anext(pieces)
            async with RayClient(ray.endpoint, attempts=1) as fresh:
                assert len(await fresh.nodes()) == 1
                assert len(await log_file(fresh, name, node_id)) > 8_000_000
