"""Ray's summary of its nodes, read into what each job holds; and the sample that all of them share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.usage import UsageSample
from airflow_provider_raytenant.exceptions import RayRequestError, RayUnavailableError
from airflow_provider_raytenant.ray_api import usage as module
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.usage import UsageSampler, parse_usage
from tests.fakes import faults
from tests.fakes.node_summary import Worker, summary
from tests.fakes.ray_server import GIB, FakeRay, node
from tests.ray_api.conftest import Until

GROUP = "2d99d05101645a854499a569674802000000"
ACTOR = "37b57e3e6ffbf1102b97c0ee02000000"


def held_by(*workers: Worker) -> Resources:
    """What the job of these workers holds."""
    text = json.dumps(summary([node("head", cpus=8, memory=GIB)], {"02000000": workers}))
    return parse_usage(text).held["02000000"]


@pytest.mark.parametrize(
    ("workers", "held"),
    [
        ([], Resources()),
        ([Worker()], Resources()),
        ([Worker({"CPU": 1})] * 3, Resources(cpus=3)),
        ([Worker({"CPU": 0.5, "GPU": 0.25, "memory": 5})] * 2, Resources(1, 10, 0.5)),
        (
            [Worker({"CPU": 1, "my_fpga": 2}), Worker({"other-Res": 1})],
            Resources(1, custom={"myFpga": 2, "other-Res": 1}),
        ),
        # A task that waits for its own has given its CPUs back, and nothing else; an actor has not.
        ([Worker({"CPU": 1, "GPU": 1}, pending=1), Worker({"CPU": 2})], Resources(cpus=2, gpus=1)),
        ([Worker({"CPU": 1}, pending=1, actor=ACTOR), Worker({"CPU": 2})], Resources(cpus=3)),
        # A bundle that was named is listed twice, one that was not once.
        (
            [Worker({f"CPU_group_{GROUP}": 1, f"CPU_group_0_{GROUP}": 1, f"bundle_group_{GROUP}": 0.001})],
            Resources(cpus=1),
        ),
        (
            [
                Worker({f"my_fpga_group_12_{GROUP}": 1, f"my_fpga_group_{GROUP}": 1}),
                Worker({f"memory_group_{GROUP}": 7, f"GPU_group_{GROUP}": 1, "memory": 3}),
            ],
            Resources(0, 10, 1, {"myFpga": 1}),
        ),
        # What only marks a place.
        ([Worker({"CPU": 1, "node:10.0.0.1": 0.001, "acme_nodes": 0.001})], Resources(cpus=1)),
    ],
)
def test_what_a_job_holds(workers: list[Worker], held: Resources) -> None:
    assert held_by(*workers) == held


def test_a_resource_in_several_slots() -> None:
    answer = summary([node("head", cpus=8, memory=GIB)], {"02000000": [Worker({"GPU": 1})]})
    (*_, row) = answer["data"]["summary"][0]["raylet"]["coreWorkersStats"]
    row["usedResources"]["GPU"]["resourceSlots"].append({"slot": "1", "allocation": 0.5})
    assert parse_usage(json.dumps(answer)).held["02000000"] == Resources(gpus=1.5)


def test_a_resource_and_its_group_add_up() -> None:
    assert held_by(Worker({"CPU": 1}), Worker({f"CPU_group_{GROUP}": 1})) == Resources(cpus=2)


def test_dead_nodes_do_not_count_and_new_ones_need_not_speak() -> None:
    """Ray keeps a dead node's last figures for ten minutes."""
    nodes = [node(name, cpus=8, memory=GIB) for name in ("a", "b", "c")]
    answer = summary(nodes, {"02000000": [Worker({"CPU": 1})]})
    living, dead, new = answer["data"]["summary"]
    dead["raylet"] |= {"state": "DEAD", "coreWorkersStats": living["raylet"]["coreWorkersStats"]}
    for name in ("coreWorkersStats", "storeStats"):
        del new["raylet"][name]
    assert parse_usage(json.dumps(answer)).held == {"02000000": Resources(cpus=1)}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"data": {"summary": {}}}',
        '{"data": {"summary": [1]}}',
        '{"data": {"summary": [{"raylet": null}]}}',
        '{"data": {"summary": [{"raylet": {"state": "ALIVE", "storeStats": {}}}]}}',
        '{"data": {"summary": [{"raylet": {"state": "ALIVE", "coreWorkersStats": [{}]}}]}}',
        '{"data": {"summary": [{"raylet": {"state": "ALIVE", "coreWorkersStats": [{"jobId": "1", '
        '"usedResources": {"CPU": 1}}]}}]}}',
        '{"data": {"summary": [{"raylet"',
    ],
)
async def test_no_sound_answer(fake: FakeRay, client: RayClient, text: str) -> None:
    fake.outage(faults.answer(text))
    with pytest.raises(RayUnavailableError, match="Ray"):
        await client.usage()


def test_a_cluster_that_has_just_begun_says_nothing_yet() -> None:
    assert parse_usage('{"data": {"summary": [{"raylet": {"state": "ALIVE"}}]}}') == UsageSample()


async def test_one_request_of_which_ray_gives_no_old_answer(fake: FakeRay, client: RayClient) -> None:
    job = fake.add_job("j")
    job.run()
    job.ray_job_id, job.workers = "02000000", [Worker({"CPU": 1})]
    assert (await client.usage()).held == {"02000000": Resources(cpus=1)}
    (seen,) = fake.seen
    assert seen.query == {"view": "summary", "nocache": "1"}


async def test_a_failure_is_not_repeated_at_once(fake: FakeRay, client: RayClient) -> None:
    fake.fail("GET", "/nodes", faults.status(503), faults.status(503))
    with pytest.raises(RayUnavailableError):
        await client.usage()
    assert fake.calls() == ["GET /nodes"]


class Source:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: asyncio.Queue[UsageSample | Exception] = asyncio.Queue()

    async def read(self) -> UsageSample:
        self.asked += 1
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def sampler(source: Source, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UsageSampler]:
    """One that need not wait between its samples."""
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(module, "SHARE", 1e9)
    made = UsageSampler(source.read)
    yield made
    await made.close()


async def test_everybody_gets_the_same_sample_of_one_request(
    source: Source, sampler: UsageSampler, until: Until
) -> None:
    for _ in range(5):
        sampler.refresh()
    assert sampler.newest is None
    sample = UsageSample({"02000000": Resources(cpus=1)})
    source.answers.put_nowait(sample)
    await until(lambda: sampler.newest is sample, "the sample")
    assert source.asked == 1
    assert sampler.problem is None
    sampler.refresh()
    await until(lambda: source.asked == 2, "the next request")


async def test_the_pause_is_the_interval_at_least(
    source: Source, sampler: UsageSampler, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 3600.0)
    source.answers.put_nowait(UsageSample())
    sampler.refresh()
    await until(lambda: sampler.newest, "the sample")
    sampler.refresh()
    assert sampler._task is None


async def test_a_dear_sample_makes_a_long_pause(
    source: Source, sampler: UsageSampler, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millisecond that takes a billionth of the time takes eleven days; but ten minutes are enough."""
    monkeypatch.setattr(module, "SHARE", 1e-9)
    source.answers.put_nowait(UsageSample())
    sampler.refresh()
    await until(lambda: sampler.newest, "the sample")
    sampler.refresh()
    assert sampler._task is None
    left = sampler._not_before - asyncio.get_running_loop().time()
    assert 0 < left <= module.LONGEST_PAUSE


async def test_it_complains_from_the_second_failure_on_and_is_well_again(
    source: Source, sampler: UsageSampler, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = []
    answers: list[UsageSample | Exception] = [
        RayUnavailableError("one"),
        RayRequestError("two"),
        ZeroDivisionError("a bug"),
        UsageSample(),
    ]
    for number, answer in enumerate(answers, start=1):
        source.answers.put_nowait(answer)
        sampler.refresh()
        await until(lambda number=number: source.asked == number and not sampler._task, "an end")
        problems.append(sampler.problem)
    assert problems == [None, "two", "a bug", None]


async def test_failures_make_longer_and_longer_pauses(
    source: Source, sampler: UsageSampler, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 60.0)
    pauses = []
    for number in range(1, 6):
        source.answers.put_nowait(RayUnavailableError("away"))
        sampler._not_before = 0.0
        sampler.refresh()
        await until(lambda number=number: source.asked == number and not sampler._task, "an end")
        pauses.append(round((sampler._not_before - asyncio.get_running_loop().time()) / 60))
    assert pauses == [1, 2, 4, 8, 10]


async def test_a_close_gives_up_what_is_under_way(source: Source, sampler: UsageSampler) -> None:
    sampler.refresh()
    task: Any = sampler._task
    await sampler.close()
    assert task.cancelled()
    sampler.refresh()
    assert sampler._task is None
