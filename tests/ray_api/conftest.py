from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import tenacity

from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.ray_api import client as client_module
from airflow_provider_raytenant.ray_api import log_follower, log_reads, stopping, watch
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.poller import JobPoller
from tests.fakes.ray_server import GIB, FakeRay
from tests.ray_api.contract import TOKEN, Contract, opened

ROOT = Path(__file__).parents[2]
BOUND_SECONDS = 20.0

Until = Callable[[Callable[[], object], str], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every delay of the room a small part of what it is."""
    monkeypatch.setattr(
        client_module, "wait_random_exponential", lambda **_options: tenacity.wait_fixed(0.005)
    )
    for name in ("_FIRST_WAIT", "_LONGEST_WAIT", "_LONGEST_BACKOFF", "_LATE"):
        monkeypatch.setattr(log_follower, name, 0.01)
    monkeypatch.setattr(log_reads, "READS_PER_SECOND", 1e6)
    monkeypatch.setattr(stopping, "_INTERVAL", 0.01)
    monkeypatch.setattr(watch, "_PACE", 0.01)


class Clock:
    """What the watch takes for the time; it stands still unless the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


@pytest.fixture
async def fake() -> AsyncIterator[FakeRay]:
    """A fake dashboard that wants the token."""
    async with FakeRay(token=TOKEN) as server:
        yield server


@pytest.fixture
def endpoint(fake: FakeRay) -> RayEndpoint:
    return RayEndpoint(fake.address, token=TOKEN)


@pytest.fixture
async def client(endpoint: RayEndpoint) -> AsyncIterator[RayClient]:
    async with RayClient(endpoint) as opened:
        yield opened


@pytest.fixture
async def poller(client: RayClient) -> AsyncIterator[JobPoller]:
    opened = JobPoller(client)
    yield opened
    await opened.close()


@pytest.fixture
def until() -> Until:
    """``await until(condition, what)`` waits, with a bound, until the condition holds."""

    async def wait(condition: Callable[[], object], what: str) -> None:
        async def poll() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        try:
            await asyncio.wait_for(poll(), BOUND_SECONDS)
        except TimeoutError:
            pytest.fail(f"waited {BOUND_SECONDS:g} s in vain for {what}")

    return wait


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A real cluster that wants the token; its dashboard looks at the workers every 2 s, not every 15."""
    own = ROOT / ".venv-cluster" / "bin" / "ray"
    binary = own if own.is_file() else Path(sys.executable).with_name("ray")
    folder = tmp_path_factory.mktemp("contract-ray")
    env = {"NODE_STATS_UPDATE_INTERVAL_SECONDS": "2"}
    with RayCluster.start(folder, 2, GIB, binary, token=TOKEN, env=env) as running:
        yield running


@pytest.fixture(
    params=[
        "fake",
        "fake behind a prefix",
        pytest.param("ray", marks=pytest.mark.stack),
    ]
)
def place(request: pytest.FixtureRequest) -> tuple[str | None, bool]:
    """The address of a real dashboard, ``None`` for a fake; and whether a proxy stands in front."""
    kind = str(request.param)
    return (request.getfixturevalue("cluster").dashboard_url if "ray" in kind else None, "prefix" in kind)


@pytest.fixture
async def ray(place: tuple[str | None, bool]) -> AsyncIterator[Contract]:
    async with AsyncExitStack() as stack:
        yield await opened(stack, *place)
