"""One client and one poller for all who use a cluster in the same event loop, opened and closed once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from typing import Any

import pytest

from airflow_provider_raytenant.exceptions import ConnectionConfigError, RayUnavailableError
from airflow_provider_raytenant.ray_api import shared
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.shared import SharedCluster, shared_cluster
from tests.fakes import faults
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.looking import add_jobs, asked


@pytest.fixture(autouse=True)
async def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """No cluster and no task stays behind, and every session that was opened is closed."""
    opened: list[RayClient] = []
    really = RayClient.open

    def noted(client: RayClient) -> None:
        opened.append(client)
        really(client)

    monkeypatch.setattr(RayClient, "open", noted)
    yield
    await asyncio.sleep(0)
    assert not shared._CLUSTERS.get(asyncio.get_running_loop())
    assert not shared._CLOSING
    assert [client for client in opened if client._session and not client._session.closed] == []


def is_open(cluster: SharedCluster) -> bool:
    return not cluster.client._open().closed


async def test_all_users_share_one(fake: FakeRay, endpoint: RayEndpoint) -> None:
    add_jobs(fake, 20)

    async def task(number: int) -> SharedCluster:
        async with shared_cluster(replace(endpoint)) as cluster:
            await cluster.poller.look(f"j{number}", latest=0.1)
            return cluster

    clusters = await asyncio.gather(*[task(number) for number in range(20)])

    assert len(set(clusters)) == 1
    assert asked(fake) == {"list": 1}
    assert not is_open(clusters[0])


async def test_the_last_user_closes_it_and_the_next_opens_another(endpoint: RayEndpoint) -> None:
    async with shared_cluster(endpoint) as first:
        async with shared_cluster(endpoint) as second:
            assert second is first
        assert is_open(first)
    assert not is_open(first)
    with pytest.raises(RuntimeError):
        await first.poller.look("j")
    async with shared_cluster(endpoint) as third:
        assert third is not first
        assert is_open(third)


async def test_every_field_of_the_endpoint_counts(endpoint: RayEndpoint) -> None:
    changes: dict[str, Any] = {
        "address": "http://127.0.0.1:1",
        "public_address": "http://ray.example",
        "token": "another",
        "headers": {"X-Team": "a"},
        "verify": False,
        "ca_file": None,
        "client_cert": None,
        "client_key": "unused.pem",
    }
    assert set(changes) == {each.name for each in fields(RayEndpoint)}
    endpoints = [endpoint, *(replace(endpoint, **{name: value}) for name, value in changes.items())]
    distinct = [each for number, each in enumerate(endpoints) if each not in endpoints[:number]]
    async with AsyncExitStack() as stack:
        for _ in range(2):
            clusters = [await stack.enter_async_context(shared_cluster(each)) for each in endpoints]
        assert len(set(clusters)) == len(distinct) == 7


async def test_headers_may_come_in_another_order(endpoint: RayEndpoint) -> None:
    one = replace(endpoint, headers={"a": "1", "b": "2"})
    other = replace(endpoint, headers={"b": "2", "a": "1"})
    async with shared_cluster(one) as first, shared_cluster(other) as second:
        assert first is second


async def test_an_endpoint_that_cannot_be_used(endpoint: RayEndpoint) -> None:
    with pytest.raises(ConnectionConfigError):
        async with shared_cluster(replace(endpoint, ca_file="/nowhere.pem")):
            pass


async def test_an_error_of_a_user_closes_it_too(endpoint: RayEndpoint) -> None:
    with pytest.raises(ZeroDivisionError):
        async with shared_cluster(endpoint) as cluster:
            _ = 1 / 0
    assert not is_open(cluster)


@pytest.mark.parametrize("turns", range(12))
async def test_users_are_cancelled_at_any_await(
    fake: FakeRay, endpoint: RayEndpoint, turns: int, until: Until
) -> None:
    """Each one after so many turns of the event loop, the last one too."""
    fake.outage(faults.delay(0.01))
    add_jobs(fake, 3)
    seen: list[SharedCluster] = []

    async def task(name: str) -> None:
        async with shared_cluster(endpoint) as cluster:
            seen.append(cluster)
            await cluster.poller.look(name)

    for again in range(2):
        users = [asyncio.create_task(task(f"j{number}")) for number in range(3)]
        for user in users:
            for _ in range(turns):
                await asyncio.sleep(0)
            user.cancel()
            user.cancel()
        await asyncio.wait(users)
        assert again or len(set(seen)) <= len(users)
    await until(lambda: all(not is_open(cluster) for cluster in seen), "the end of all sessions")


async def test_a_cancel_during_the_close_does_not_cut_it_short(
    endpoint: RayEndpoint, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, go_on = asyncio.Event(), asyncio.Event()
    really = SharedCluster.close

    async def slow(cluster: SharedCluster) -> None:
        closing.set()
        await go_on.wait()
        await really(cluster)

    monkeypatch.setattr(SharedCluster, "close", slow)
    clusters = []

    async def task() -> None:
        async with shared_cluster(endpoint) as cluster:
            clusters.append(cluster)

    user = asyncio.create_task(task())
    await closing.wait()
    user.cancel()
    await asyncio.wait([user])
    # Somebody who comes now gets a cluster of their own.
    newcomer = asyncio.create_task(task())
    await until(lambda: len(clusters) == 2, "the newcomer")
    assert clusters[0] is not clusters[1]
    assert is_open(clusters[0])
    go_on.set()
    await newcomer
    await until(lambda: not is_open(clusters[0]), "the close that went on")
    await until(lambda: not shared._CLOSING, "the end of the closing task")


async def test_looks_that_wait_at_the_end_are_told(
    fake: FakeRay, endpoint: RayEndpoint, until: Until
) -> None:
    fake.outage(faults.hang)
    async with shared_cluster(endpoint) as cluster:
        stray = asyncio.create_task(cluster.poller.look("j"))
        await until(lambda: fake.seen, "the request")
    with pytest.raises(RayUnavailableError, match="closed"):
        await stray


def test_each_event_loop_has_its_own() -> None:
    endpoint = RayEndpoint("http://127.0.0.1:1")
    clusters: list[SharedCluster] = []
    met = threading.Barrier(2, timeout=20)

    async def use() -> None:
        async with shared_cluster(endpoint) as cluster, shared_cluster(endpoint) as again:
            assert again is cluster
            clusters.append(cluster)
            await asyncio.to_thread(met.wait)
            assert is_open(cluster)

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len(set(clusters)) == 2


def test_a_loop_that_ended_in_the_middle_is_forgotten() -> None:
    endpoint = RayEndpoint("http://127.0.0.1:1")
    entered = []

    async def enter_only() -> None:
        entered.append(shared_cluster(endpoint))
        cluster = await entered[-1].__aenter__()
        await cluster.close()

    async def use() -> int:
        async with shared_cluster(endpoint) as cluster:
            return cluster.users

    loop = asyncio.new_event_loop()
    loop.run_until_complete(enter_only())
    assert loop in shared._CLUSTERS
    loop.close()

    assert asyncio.run(use()) == 1
    assert loop not in shared._CLUSTERS
