"""The address of a claim is asked for right before the submit, and only by who submits."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.exceptions import StorageDeniedError
from airflow_provider_raytenant.ray_api.client import RayClient
from tests.fakes.ray_server import FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.watching import REQUEST, Watched

WITH_ENV: dict[str, Any] = {**REQUEST, "runtime_env": {"env_vars": {"A": "1"}}}


class Claims:
    """Gives an address, and counts."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self.error = error

    async def __call__(self) -> str:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return f"http://s3/ticket?number={self.asked}"


async def test_the_job_gets_an_address_that_no_argument_holds(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    claims = Claims()
    watched = Watched(client, request=WITH_ENV, claim=claims)
    await until(lambda: "j" in fake.jobs, "the submit")
    job = fake.jobs["j"]
    env_vars = job.request["runtime_env"]["env_vars"]
    assert env_vars == {"A": "1", "RAYTENANT_CLAIM": "http://s3/ticket?number=1"}
    assert WITH_ENV["runtime_env"]["env_vars"] == {"A": "1"}
    job.run()
    job.write_record()
    job.end()
    assert (await watched.outcome()).error is None
    assert claims.asked == 1


async def test_a_job_that_is_there_has_its_ticket(fake: FakeRay, client: RayClient, until: Until) -> None:
    first = Watched(client, request=WITH_ENV, claim=Claims())
    await until(lambda: "j" in fake.jobs, "the submit")
    first.task.cancel()
    claims = Claims()
    second = Watched(client, request=WITH_ENV, claim=claims)
    await until(lambda: second.noted("is PENDING"), "the second watch to see it")
    fake.jobs["j"].run()
    fake.jobs["j"].write_record()
    fake.jobs["j"].end()
    assert (await second.outcome()).error is None
    assert claims.asked == 0


async def test_without_a_ticket_nothing_is_submitted(fake: FakeRay, client: RayClient) -> None:
    watched = Watched(client, request=WITH_ENV, claim=Claims(StorageDeniedError("role x cannot be assumed")))
    with pytest.raises(StorageDeniedError):
        await watched.outcome()
    assert fake.jobs == {}
