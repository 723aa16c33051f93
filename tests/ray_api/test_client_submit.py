"""A submit makes one job or none, whatever becomes of its answers."""

from __future__ import annotations

import pytest

from airflow_provider_raytenant.exceptions import RayAuthError, RayRequestError, RayUnavailableError
from airflow_provider_raytenant.ray_api.client import ATTEMPTS, RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes import faults
from tests.fakes.faults import Fault
from tests.fakes.ray_server import FakeRay

REQUEST = {"submission_id": "j", "entrypoint": "python x.py", "metadata": {"raytenant.tenant": "acme"}}
POST, GET = "POST /api/jobs/", "GET /api/jobs/j"

EFFECT_BUT_NO_ANSWER = {
    "answer lost": faults.lose_answer,
    "answer truncated": faults.truncate,
    "answer broken off": faults.break_off,
}
NO_EFFECT = {
    "dropped": faults.drop,
    "500": faults.status(500),
    "502": faults.status(502),
    "429": faults.status(429),
    "false already exists": faults.already_exists,
}


async def test_one_request_makes_one_job(fake: FakeRay, client: RayClient) -> None:
    assert await client.submit(REQUEST) is True

    assert fake.jobs["j"].request == REQUEST
    assert fake.calls() == [POST]


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"])
async def test_a_job_that_is_there_is_adopted(fake: FakeRay, client: RayClient, status: str) -> None:
    first = fake.add_job("j", entrypoint="of the first")
    first.status = status

    assert await client.submit(REQUEST) is False

    assert fake.jobs["j"] is first
    assert fake.calls() == [POST, GET]


@pytest.mark.parametrize("fault", EFFECT_BUT_NO_ANSWER.values(), ids=EFFECT_BUT_NO_ANSWER)
async def test_a_job_without_an_answer_is_found(fake: FakeRay, client: RayClient, fault: Fault) -> None:
    fake.fail("POST", "/api/jobs/", fault)

    assert await client.submit(REQUEST) is False

    assert list(fake.jobs) == ["j"]
    assert fake.calls() == [POST, GET]


async def test_a_job_whose_answer_is_late_is_found(fake: FakeRay, endpoint: RayEndpoint) -> None:
    fake.fail("POST", "/api/jobs/", faults.delay(30))

    async with RayClient(endpoint, timeout=0.2) as client:
        assert await client.submit(REQUEST) is False

    assert list(fake.jobs) == ["j"]
    assert fake.calls("POST") == [POST]


@pytest.mark.parametrize("fault", NO_EFFECT.values(), ids=NO_EFFECT)
async def test_it_looks_before_it_repeats(fake: FakeRay, client: RayClient, fault: Fault) -> None:
    fake.fail("POST", "/api/jobs/", fault, fault)

    assert await client.submit(REQUEST) is True

    assert list(fake.jobs) == ["j"]
    assert fake.calls() == [POST, GET, POST, GET, POST]


async def test_it_ends_after_all_attempts(fake: FakeRay, client: RayClient) -> None:
    fake.fail("POST", "/api/jobs/", *[faults.already_exists] * 9)

    with pytest.raises(RayUnavailableError, match="already exists"):
        await client.submit(REQUEST)

    assert fake.calls() == [POST, GET] * ATTEMPTS
    assert fake.jobs == {}


async def test_a_look_that_fails_is_repeated_itself(fake: FakeRay, client: RayClient) -> None:
    fake.fail("POST", "/api/jobs/", faults.lose_answer)
    fake.fail("GET", "/api/jobs/j", faults.drop, faults.status(502), faults.truncate)

    assert await client.submit(REQUEST) is False

    assert fake.calls() == [POST, *[GET] * 4]


async def test_an_outage_in_the_middle_leaves_one_job(fake: FakeRay, client: RayClient) -> None:
    fake.fail("POST", "/api/jobs/", faults.lose_answer, faults.drop, faults.passes)
    fake.fail("GET", "/api/jobs/j", *[faults.status(502)] * (2 * ATTEMPTS))

    assert await client.submit(REQUEST) is False

    assert list(fake.jobs) == ["j"]
    assert fake.calls("POST") == [POST] * 3


@pytest.mark.parametrize(
    "request_",
    [{**REQUEST, "priority": 1}, {"submission_id": "j"}, {**REQUEST, "entrypoint_num_cpus": "two"}],
    ids=["unknown field", "no entrypoint", "wrong type"],
)
async def test_a_refused_submit_is_neither_looked_for_nor_repeated(
    fake: FakeRay, client: RayClient, request_: dict[str, object]
) -> None:
    with pytest.raises(RayRequestError, match="400") as caught:
        await client.submit(request_)

    assert caught.value.details == {"status": 400}
    assert fake.calls() == [POST]
    assert fake.jobs == {}


async def test_a_token_that_goes_stale_in_the_middle(fake: FakeRay, client: RayClient) -> None:
    fake.fail("POST", "/api/jobs/", faults.drop)
    fake.fail("GET", "/api/jobs/j", faults.status(403, "Forbidden"))

    with pytest.raises(RayAuthError, match="refuses the connection's token"):
        await client.submit(REQUEST)

    assert fake.calls() == [POST, GET]
