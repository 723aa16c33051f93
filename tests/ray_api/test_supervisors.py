"""Who lives, by Ray's state API; an answer that may lack somebody is no answer."""

from __future__ import annotations

import pytest

from airflow_provider_raytenant.exceptions import RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from tests.fakes import faults
from tests.fakes.ray_server import FakeRay, actor


async def test_running_jobs_have_one(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("pending")
    fake.add_job("running").run()
    fake.add_job("ended").end()
    lost = fake.add_job("lost")
    lost.run()
    lost.supervised = False

    assert await client.supervisors() == {"running"}
    assert len(fake.seen) == 1


async def test_other_actors_are_not_taken_for_one(fake: FakeRay, client: RayClient) -> None:
    fake.actors = [
        actor("Trainer", "_ray_internal_job_actor_of_somebody"),
        actor("JobSupervisor", "mine"),
        actor("JobSupervisor", "_ray_internal_job_actor_dead", state="DEAD"),
        actor("JobSupervisor", "_ray_internal_job_actor_with_a-dash_and_line"),
    ]

    assert await client.supervisors() == {"with_a-dash_and_line"}


async def test_more_than_a_page_of_ray(fake: FakeRay, client: RayClient) -> None:
    for number in range(250):
        fake.add_job(f"j{number}").run()

    assert len(await client.supervisors()) == 250


async def test_a_part_of_the_answer_is_none(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").run()
    fake.actors = [actor("Trainer")] * 20
    assert await client.supervisors() == {"j"}
    fake.most_actors = 10
    with pytest.raises(RayUnavailableError, match=r"a part of its actors only.*'total': 21"):
        await client.supervisors()


@pytest.mark.parametrize(
    "counts",
    [
        '"total": 2, "num_after_truncation": 2, "num_filtered": 2, "result": []',
        '"total": 2, "num_after_truncation": 1, "num_filtered": 0, "result": []',
        '"total": 0, "num_after_truncation": 0, "num_filtered": 0, "result": [],'
        ' "partial_failure_warning": "a source did not answer"',
        '"total": 0, "num_after_truncation": 0, "num_filtered": 0, "result": null',
        '"num_after_truncation": 0, "num_filtered": 0, "result": []',
        '"total": 1, "num_after_truncation": 1, "num_filtered": 1, "result": [{"name": "x"}]',
    ],
)
async def test_no_sound_answer(fake: FakeRay, client: RayClient, counts: str) -> None:
    fake.outage(faults.answer(f'{{"data": {{"result": {{{counts}}}}}}}'))
    with pytest.raises(RayUnavailableError, match=r"of its actors|list of actors"):
        await client.supervisors()
