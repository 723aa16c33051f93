"""A job that holds more than it declared is found out while it runs, and never harmed by the looking."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.usage import OnOveruse
from airflow_provider_raytenant.ray_api import usage as module
from airflow_provider_raytenant.ray_api import use_watch
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.shared import shared_cluster
from airflow_provider_raytenant.ray_api.use_watch import UseTold
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings
from tests.fakes import faults
from tests.fakes.node_summary import Worker
from tests.fakes.ray_server import FakeJob, FakeRay
from tests.ray_api.conftest import Until
from tests.ray_api.watching import REQUEST, Watched

WARNING = "The job holds more in Ray than it declared: "
RAN = {"submission_id": "j", "run_seconds": 1.0}
"""What is known of a job without a sample, by the record that :func:`end` writes."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(module, "SHARE", 1e9)


def request(cpus: float = 2) -> dict[str, Any]:
    """A job that declares so many CPUs, one of them for its driver."""
    footprint = json.dumps(Resources(cpus=cpus).to_json())
    metadata = {**REQUEST["metadata"], METADATA_PREFIX + "footprint": footprint}
    return {**REQUEST, "metadata": metadata, "entrypoint_num_cpus": 1}


async def running(fake: FakeRay, until: Until, *workers: Worker) -> FakeJob:
    await until(lambda: "j" in fake.jobs, "the submit")
    job = fake.jobs["j"]
    job.ray_job_id, job.workers = "02000000", [*workers]
    job.run()
    return job


def end(job: FakeJob) -> None:
    job.write_record(result=None)
    job.end()


async def sampled(fake: FakeRay, until: Until, times: int = 2) -> None:
    """Wait for so many samples from now on: the last but one has been taken in by then."""
    so_far = len(fake.calls("GET", "/nodes"))
    await until(lambda: len(fake.calls("GET", "/nodes")) >= so_far + times, "samples")


async def test_overuse_is_told_once_and_the_peak_at_the_end(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    watched = Watched(client, request=request())
    job = await running(fake, until, *[Worker({"CPU": 1})] * 3)
    await until(lambda: watched.noted(WARNING + "held up to 4 CPUs; declared 2. "), "the warning")
    await sampled(fake, until, 4)
    job.workers = []
    await sampled(fake, until)
    end(job)
    outcome = await watched.outcome()

    assert sum(WARNING in note for note in watched.notes) == 1
    assert watched.notes[-1] == "Peak use: 4 CPUs, of declared 2 CPUs"
    assert outcome.error is None
    assert outcome.usage is not None
    assert outcome.usage["peak"] == {"cpus": 4.0}
    assert outcome.usage["over"] == "held up to 4 CPUs; declared 2"
    assert outcome.usage["run_seconds"] == 1.0


async def test_a_job_within_its_footprint_is_told_its_peak_only(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    watched = Watched(client, request=request())
    job = await running(fake, until, Worker({"CPU": 1}))
    await sampled(fake, until, 3)
    end(job)
    outcome = await watched.outcome()

    assert not watched.noted(WARNING)
    assert watched.notes[-1] == "Peak use: 2 CPUs, of declared 2 CPUs"
    assert outcome.usage is not None
    assert outcome.usage["over"] is None


async def test_drivers_that_come_one_after_the_other(fake: FakeRay, client: RayClient, until: Until) -> None:
    """Ray names only the last; workers of the one before may still be there."""
    watched = Watched(client, request=request())
    job = await running(fake, until, Worker({"CPU": 1}))
    await sampled(fake, until, 3)
    other = fake.add_job("left-behind")
    other.ray_job_id, other.workers = "02000000", [Worker({"CPU": 1})]
    other.run()
    job.ray_job_id, job.workers = "03000000", [Worker({"CPU": 1}), Worker({"CPU": 1})]
    await until(lambda: watched.noted(WARNING + "held up to 4 CPUs"), "the warning")
    end(job)
    await watched.outcome()


async def test_a_failed_job_has_its_peak_too(fake: FakeRay, client: RayClient, until: Until) -> None:
    watched = Watched(client, request=request())
    job = await running(fake, until, Worker({"CPU": 5}))
    await until(lambda: watched.noted(WARNING), "the warning")
    job.write_record(exit_code=3)
    job.end("FAILED", exit_code=3)
    outcome = await watched.outcome()

    assert outcome.error is not None
    assert outcome.usage is not None
    assert outcome.usage["peak"] == {"cpus": 6.0}


async def test_a_job_that_no_sample_has_seen_is_told_nothing(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    fake.outage(None)
    watched = Watched(client, request=request())
    job = await running(fake, until)
    # The dashboard's figures are from before the driver came.
    job.workers, fake.nodes[0]["state"] = [], "DEAD"
    await sampled(fake, until)
    end(job)
    outcome = await watched.outcome()

    assert outcome.usage == RAN
    assert not watched.noted("Peak")


@pytest.mark.parametrize("why", ["ignored", "no footprint", "no driver of Ray"])
async def test_nothing_is_sampled_in_vain(fake: FakeRay, client: RayClient, until: Until, why: str) -> None:
    asked = REQUEST if why == "no footprint" else request()
    action = OnOveruse.IGNORE if why == "ignored" else OnOveruse.WARN
    watched = Watched(client, request=asked, on_overuse=action)
    job = await running(fake, until, *[Worker({"CPU": 9})])
    if why == "no driver of Ray":
        job.ray_job_id = None
    looks = len(fake.calls("GET", "/api/jobs/.*"))
    await until(lambda: len(fake.calls("GET", "/api/jobs/.*")) > looks + 5, "some looks at the job")
    end(job)
    outcome = await watched.outcome()

    assert outcome.usage == RAN
    assert fake.calls("GET", "/nodes") == []


@pytest.mark.parametrize("fault", [faults.status(500), faults.status(404), faults.hang])
async def test_what_cannot_be_sampled_harms_no_job_and_is_told_once_at_most(
    fake: FakeRay, client: RayClient, until: Until, fault: Any
) -> None:
    fake.fail("GET", "/nodes", *[fault] * 1000)
    watched = Watched(client, request=request())
    job = await running(fake, until, *[Worker({"CPU": 9})])
    looks = len(fake.calls("GET", "/api/jobs/.*"))
    await until(lambda: len(fake.calls("GET", "/api/jobs/.*")) > looks + 20, "looks at the job")
    if fault is not faults.hang:
        await until(lambda: watched.noted("cannot be seen just now"), "the note")
        await sampled(fake, until, 3)
    end(job)
    outcome = await watched.outcome()

    assert outcome.error is None
    assert outcome.usage == RAN
    assert sum("cannot be seen just now" in note for note in watched.notes) == (fault is not faults.hang)


async def test_all_jobs_of_a_cluster_share_the_samples(
    fake: FakeRay, client: RayClient, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 3600.0)
    notes: dict[str, list[str]] = {f"j{number}": [] for number in range(20)}
    async with shared_cluster(client.endpoint) as cluster:
        watches = []
        for number, (name, said) in enumerate(notes.items()):
            job = fake.add_job(name)
            job.ray_job_id, job.workers = f"{number:02}000000", [Worker({"CPU": number})]
            job.run()
            watch = JobWatch(
                cluster, {**request(), "submission_id": name}, WatchSettings(), lambda line: None, said.append
            )
            watches.append(asyncio.create_task(watch.run()))
        over = [said for number, said in enumerate(notes.values()) if number > 1]
        await until(lambda: all(WARNING in " ".join(said) for said in over), "all warnings")
        for job in fake.jobs.values():
            end(job)
        outcomes = await asyncio.wait_for(asyncio.gather(*watches), 20)

    assert [outcome.usage["peak"]["cpus"] for outcome in outcomes if outcome.usage] == [
        number + 1.0 for number in range(20)
    ]
    assert len(fake.calls("GET", "/nodes")) == 1


class Kept:
    """Where the peak is kept between two watches; ``warnings`` is what the task's log gets."""

    def __init__(self, content: Any = None) -> None:
        self.content = content
        self.loads = 0
        self.saves: list[dict[str, Any]] = []
        self.warnings: list[str] = []

    async def load(self) -> Any:
        self.loads += 1
        return self.content

    async def save(self, usage: dict[str, Any]) -> None:
        self.saves.append(usage)
        self.content = json.loads(json.dumps(usage))

    @property
    def told(self) -> UseTold:
        return UseTold(self.warnings.append, load=self.load, save=self.save)


async def test_the_next_watch_of_a_job_goes_on_from_its_peak(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    kept = Kept()
    first = Watched(client, request=request(), use=kept.told)
    job = await running(fake, until, *[Worker({"CPU": 1})] * 3)
    await until(lambda: kept.saves, "the peak of the first watch")
    await sampled(fake, until, 3)
    first.task.cancel()
    await asyncio.wait([first.task])
    assert kept.loads == 0
    assert [saved["peak"] for saved in kept.saves] == [{"cpus": 4.0}]

    job.workers = [Worker({"CPU": 2})]
    second = Watched(client, request=request(), use=kept.told)
    await sampled(fake, until, 3)
    end(job)
    outcome = await second.outcome()

    assert kept.loads == 1
    assert len(kept.saves) == len(kept.warnings) == 1
    assert second.notes[-1] == "Peak use: 4 CPUs, of declared 2 CPUs"
    assert outcome.usage is not None
    assert outcome.usage["submission_id"] == "j"
    assert outcome.usage["samples"] > kept.saves[0]["samples"]


async def test_a_peak_that_grows_little_is_not_kept_again(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    kept = Kept()
    watched = Watched(client, request=request(cpus=99), use=kept.told)
    job = await running(fake, until, Worker({"CPU": 7}))
    await until(lambda: kept.saves, "the first peak")
    job.workers = [Worker({"CPU": 8})]
    await sampled(fake, until, 3)
    job.workers = [Worker({"CPU": 9})]
    await until(lambda: len(kept.saves) == 2, "the peak that grew")
    end(job)
    await watched.outcome()

    assert [saved["peak"]["cpus"] for saved in kept.saves] == [8, 10]
    assert kept.warnings == []


async def test_nonsense_from_before_is_told_and_forgotten(
    fake: FakeRay, client: RayClient, until: Until
) -> None:
    job = fake.add_job("j")
    job.ray_job_id, job.workers = "02000000", [Worker({"CPU": 1})]
    job.run()
    kept = Kept({"peak": "nonsense"})
    watched = Watched(client, request=request(), use=kept.told)
    await sampled(fake, until, 3)
    end(job)
    outcome = await watched.outcome()

    assert watched.noted("What the job held before is not known")
    assert outcome.usage is not None
    assert outcome.usage["peak"] == {"cpus": 2.0}


async def test_a_store_that_hangs_holds_up_nothing(
    fake: FakeRay, client: RayClient, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use_watch, "LOAD_PATIENCE", 0.05)

    class Hangs(Kept):
        async def load(self) -> Any:
            self.loads += 1
            await asyncio.Event().wait()

        async def save(self, usage: dict[str, Any]) -> None:
            self.saves.append(usage)
            await asyncio.Event().wait()

    def left() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if " of j" in task.get_name()]

    kept = Hangs()
    first = Watched(client, request=request(), use=kept.told)
    job = await running(fake, until, *[Worker({"CPU": 1})] * 3)
    await until(lambda: kept.saves, "a save")
    job.workers = [Worker({"CPU": 1})] * 9
    await sampled(fake, until, 3)
    assert left().count("peak of j") == 1
    first.task.cancel()
    await asyncio.wait([first.task])
    assert left() == []
    second = Watched(client, request=request(), use=kept.told)
    await until(lambda: second.noted("it takes too long to read"), "the end of patience")
    await sampled(fake, until, 3)
    end(job)
    outcome = await second.outcome()

    assert kept.loads == 1
    assert [saved["peak"]["cpus"] for saved in kept.saves] == [4, 10]
    assert outcome.usage is not None
    assert outcome.usage["peak"] == {"cpus": 10.0}
    assert left() == []


@pytest.mark.parametrize("failed", [False, True])
async def test_a_task_without_xcoms_gets_none_for_its_time_alone(
    fake: FakeRay, client: RayClient, until: Until, failed: bool
) -> None:
    watched = Watched(client, request=request(), needs_result=False)
    job = await running(fake, until)
    job.write_record(exit_code=int(failed))
    job.end("FAILED" if failed else "SUCCEEDED", exit_code=int(failed))
    outcome = await watched.outcome()

    assert (outcome.error is not None) is failed
    assert outcome.usage is None
