"""What `deferrable=False` does: a retry goes on with the job of a worker that died."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_provider_raytenant.domain.adoption import STORE_KEY
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import JobStoppedError, RayUnavailableError
from airflow_provider_raytenant.operators import prepare as prepare_module
from airflow_provider_raytenant.operators import wait as module
from airflow_provider_raytenant.operators.job import RayTenantJobOperator
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.operators.test_prepare import FakeTask


class Store:
    """Airflow's task state store, as far as it is used."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self.content.get(key)

    def set(self, key: str, value: Any) -> None:
        self.content[key] = value

    def delete(self, key: str) -> None:
        self.content.pop(key, None)


class Cluster:
    """What of Ray matters here: the jobs that are there, and the watch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: dict[str, JobStatus] = {}
        self.kept: list[str | None] = []
        self.noted: list[str | None] = []
        self.watched: list[tuple[str, str | None]] = []
        self.outcome: Outcome | BaseException = Outcome("id", result=7)
        self.store = Store()
        monkeypatch.setenv("AIRFLOW_CONN_RAY_SHARED", '{"conn_type": "ray", "host": "http://head:8265"}')

        async def ready(*arguments: Any) -> None: ...

        async def stop_older(
            endpoint: Any, identity: Any, keep: str | None, noted: str | None, log: Any
        ) -> None:
            self.kept.append(keep)
            self.noted.append(noted)

        async def watch(prepared: Any, left_behind: str | None, log: Any) -> Outcome:
            self.watched.append((prepared.submission_id, left_behind))
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome

        async def look(endpoint: Any, submission_id: str) -> JobInfo | None:
            status = self.jobs.get(submission_id)
            return None if status is None else JobInfo(submission_id, status)

        monkeypatch.setattr(prepare_module, "_make_ready", ready)
        monkeypatch.setattr(prepare_module, "_stop_older_tries", stop_older)
        monkeypatch.setattr(module, "_watch", watch)
        monkeypatch.setattr(module, "_look", look)

    def run(
        self, try_number: int, *, max_tries: int = 3, clear_number: int = 0, outage_budget: float = 600
    ) -> Any:
        with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
            operator = RayTenantJobOperator(
                task_id="t", tenant="acme", entrypoint="true", deferrable=False, outage_budget=outage_budget
            )
        task = FakeTask(
            f"0197aaaa-0000-7000-8000-{try_number:012}", try_number=try_number, max_tries=max_tries
        )
        context = {
            "ti": task,
            "dag_run": SimpleNamespace(clear_number=clear_number),
            "task_state_store": self.store,
        }
        return operator.execute(context)  # type: ignore[arg-type]

    def lose_the_worker(self, try_number: int, **marks: int) -> str:
        """A try whose worker dies while the job runs; the id of the job."""
        self.outcome = SystemExit()
        with pytest.raises(SystemExit):
            self.run(try_number, **marks)
        self.outcome = Outcome("id", result=7)
        submitted, adopted = self.watched[-1]
        name = adopted or submitted
        self.jobs[name] = JobStatus.RUNNING
        return name


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_the_job_is_noted_before_it_is_submitted_and_forgotten_once_its_end_was_seen(
    cluster: Cluster,
) -> None:
    name = cluster.lose_the_worker(1)
    assert cluster.store.content[STORE_KEY]["submission_id"] == name
    assert cluster.run(1) == 7
    assert cluster.store.content == {}


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_a_retry_goes_on_with_the_job_and_does_not_stop_it(cluster: Cluster, status: JobStatus) -> None:
    name = cluster.lose_the_worker(1)
    cluster.jobs[name] = status
    assert cluster.run(2) == 7
    assert cluster.watched[-1][1] == name
    assert cluster.kept[-1] == name


def test_a_worker_that_dies_again_leaves_the_same_job(cluster: Cluster) -> None:
    name = cluster.lose_the_worker(1)
    assert cluster.lose_the_worker(2) == name
    assert cluster.run(3) == 7
    assert cluster.watched[-1][1] == name


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.STOPPED, None])
def test_a_job_that_failed_meanwhile_or_is_gone_is_run_anew(
    cluster: Cluster, status: JobStatus | None
) -> None:
    name = cluster.lose_the_worker(1)
    if status is None:
        del cluster.jobs[name]
    else:
        cluster.jobs[name] = status
    cluster.run(2)
    assert cluster.watched[-1][1] is None
    assert cluster.kept[-1] is None


@pytest.mark.parametrize("marks", [{"max_tries": 4}, {"clear_number": 1}])
def test_a_clear_in_between_means_a_new_job(cluster: Cluster, marks: dict[str, int]) -> None:
    cluster.lose_the_worker(1)
    cluster.run(2, **marks)
    assert cluster.watched[-1][1] is None


def test_a_job_whose_end_was_seen_is_not_adopted(cluster: Cluster) -> None:
    cluster.outcome = RayUnavailableError("away")
    with pytest.raises(RayUnavailableError):
        cluster.run(1)
    name = cluster.watched[-1][0]
    cluster.jobs[name] = JobStatus.RUNNING
    cluster.outcome = Outcome("id", result=7)
    # Nobody has seen its end: Ray was away.
    cluster.run(2)
    assert cluster.watched[-1][1] == name
    cluster.run(3)
    assert cluster.watched[-1][1] is None


def test_an_outage_in_the_retry_does_not_cost_the_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = cluster.lose_the_worker(1)

    async def away(*arguments: Any) -> Any:
        raise RayUnavailableError("away")

    with monkeypatch.context() as outage:
        outage.setattr(module, "_look", away)
        with pytest.raises(RayUnavailableError):
            cluster.run(2, outage_budget=0.01)
    assert cluster.run(3) == 7
    assert cluster.watched[-1][1] == name


def test_a_try_that_ran_out_of_time_is_not_adopted(cluster: Cluster) -> None:
    cluster.outcome = AirflowTaskTimeout()
    with pytest.raises(AirflowTaskTimeout):
        cluster.run(1)
    cluster.jobs[cluster.watched[-1][0]] = JobStatus.RUNNING
    cluster.outcome = Outcome("id", result=7)
    cluster.run(2)
    assert cluster.watched[-1][1] is None


def test_a_task_that_is_killed_while_it_prepares_submits_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow calls `on_kill` and lets `execute` go on for 5 s."""
    made = prepare_module.prepare

    def killed(operator: RayTenantJobOperator, *arguments: Any, **options: Any) -> Any:
        operator.on_kill()
        return made(operator, *arguments, **options)

    monkeypatch.setattr(module, "prepare", killed)
    monkeypatch.setattr(module, "stop_here", lambda *arguments: None)
    with pytest.raises(JobStoppedError, match="killed before its job was submitted"):
        cluster.run(1)
    assert cluster.watched == []


def test_the_job_of_an_older_try_that_ray_does_not_know_yet_loses_its_ticket(cluster: Cluster) -> None:
    name = cluster.lose_the_worker(1)
    cluster.run(2, clear_number=1)
    assert cluster.noted[-1] == name


def test_a_stop_from_a_signal_handler_works_while_the_job_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped: list[str] = []

    async def stop(client: Any, submission_id: str, **limits: float) -> bool:
        stopped.append(submission_id)
        return True

    monkeypatch.setattr(module, "stop_job", stop)

    async def waiting() -> None:
        # As Airflow does it: `on_kill` is called in the thread whose event loop waits for the job.
        job = module.WaitedJob(RayEndpoint("http://127.0.0.1:1"), "j")
        module.stop_here(job, logging.getLogger(__name__))

    asyncio.run(waiting())
    assert stopped == ["j"]
