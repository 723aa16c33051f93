"""A tenant file, fake dashboards and a table of task instances, for the sweep and its commands."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import tenacity

from airflow_provider_raytenant.control import clusters, controller, sweeper
from airflow_provider_raytenant.database import heartbeats
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.job_spec import TryIdentity
from airflow_provider_raytenant.domain.pool_rows import ExistingPool, PoolPlan, PoolsNow
from airflow_provider_raytenant.domain.sweep import OwnJob, TaskNow, TasksNow
from airflow_provider_raytenant.exceptions import ConnectionConfigError, DatabaseUnavailableError
from airflow_provider_raytenant.pools import capacity, sync
from airflow_provider_raytenant.pools.sync import DagFacts
from airflow_provider_raytenant.ray_api import client as client_module
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes.ray_server import FakeJob, FakeRay
from tests.fakes.served import served

FILE = """\
deployment: prod
defaults: {cluster: one}
clusters:
  one: {ray_conn_id: ray_one, groups: {cpu: {slot: {cpus: 1, memory: 512MiB}}}}
  two: {ray_conn_id: ray_two, groups: {cpu: {slot: {cpus: 1, memory: 512MiB}}}}
tenants:
  acme: {}
  globex: {cluster: two}
"""


def identity(number: int = 1, **more: Any) -> TryIdentity:
    known: dict[str, Any] = {
        "deployment": "prod",
        "tenant": "acme",
        "dag_id": "etl",
        "run_id": f"manual__{number}",
        "task_id": "load",
        "map_index": -1,
        "try_number": 1,
        "ti_id": str(UUID(int=number)),
    }
    return TryIdentity(**{**known, **more})


@dataclass
class Database:
    """Task instances and pools; ``away`` makes every question fail, ``hangs`` lets it wait for the event."""

    tasks: dict[tuple[str, str, str, int], TaskNow] = field(default_factory=dict)
    pools: dict[str, ExistingPool] = field(default_factory=dict)
    demand: dict[str, Demand] = field(default_factory=dict)
    endpoints: dict[str, RayEndpoint] = field(default_factory=dict)
    away: bool = False
    hangs: threading.Event | None = None
    reads: int = 0
    writes: int = 0
    syncs: int = 0
    beats: list[str] = field(default_factory=list)

    def state(self, own: TryIdentity, state: str | None, **more: Any) -> None:
        """Let a try be in a state; ``ti_id`` and ``try_number`` are those of its successor, if given."""
        now = TaskNow(**{"ti_id": own.ti_id, "try_number": own.try_number, **more}, state=state)
        self.tasks[(own.dag_id, own.run_id, own.task_id, own.map_index)] = now

    def ask(self) -> None:
        self.reads += 1
        if self.hangs is not None:
            self.hangs.wait(60)
        if self.away:
            raise DatabaseUnavailableError(f"Airflow's database: connection refused ({self.reads})")

    def read_tasks(self, jobs: Collection[OwnJob]) -> TasksNow:
        if jobs:
            self.ask()
        return TasksNow({now.ti_id: now for now in self.tasks.values()}, dict(self.tasks))

    def read_endpoint(self, conn_id: str) -> RayEndpoint:
        if conn_id not in self.endpoints:
            raise ConnectionConfigError(f"connection {conn_id}: found none; allowed: one of type ray")
        return self.endpoints[conn_id]

    def read_pools(self, *_known: Any) -> PoolsNow:
        self.ask()
        return PoolsNow(dict(self.pools), dict(self.demand))

    def write_pools(self, make_plan: Any, *_known: Any) -> PoolPlan:
        self.ask()
        self.writes += 1
        plan: PoolPlan = make_plan(PoolsNow(dict(self.pools), dict(self.demand)))
        for pool in plan.changes:
            self.pools[pool.name] = ExistingPool(
                pool.name, pool.wanted, pool.description, occupied=pool.occupied
            )
        return plan

    def beat(self, job_id: int | None) -> int:
        self.ask()
        self.beats.append("lives")
        return job_id or 1

    def note(self, job_type: str) -> None:
        self.ask()
        if job_type == heartbeats.SYNC:
            self.syncs += 1
        else:
            self.beats.append("once")

    def end(self, _job_id: int) -> None:
        self.ask()
        self.beats.append("ended")

    def read_largest_requests(self) -> dict[str, tuple[int, str]]:
        self.ask()
        return {}

    def read_dags(self) -> DagFacts:
        return DagFacts(self.read_largest_requests())


@dataclass
class World:
    one: FakeRay
    two: FakeRay
    database: Database
    file: Path

    def job(
        self, own: TryIdentity, status: str = "RUNNING", *, ray: FakeRay | None = None, **metadata: str
    ) -> FakeJob:
        """A job of Ray's with the metadata of a try, under the try's id."""
        known = {**own.metadata(), "raytenant.slots": "2", "raytenant.pool": f"ray.{own.tenant}"}
        known |= {f"raytenant.{name}": value for name, value in metadata.items()}
        job = (ray or self.one).add_job(own.submission_id, metadata=known)
        if status != "PENDING":
            job.run()
        if status not in ("PENDING", "RUNNING"):
            job.end(status)
        return job


def install(database: Database, patch: pytest.MonkeyPatch) -> None:
    """Let everything that asks Airflow's database ask this one."""
    for module in (sweeper, clusters, capacity):
        patch.setattr(module, "read_tasks", database.read_tasks)
    for module in (clusters, capacity):
        patch.setattr(module, "read_endpoint", database.read_endpoint)
    patch.setattr(clusters, "ask_database", database.ask)
    patch.setattr(controller, "read_dags", database.read_dags)
    for name in ("beat", "note", "end"):
        patch.setattr(heartbeats, name, getattr(database, name))
    patch.setattr(sync, "read_pools", database.read_pools)
    patch.setattr(sync, "write_pools", database.write_pools)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two fake clusters, a database that answers, and a tenant file that names them."""
    monkeypatch.setattr(client_module, "wait_random_exponential", lambda **_: tenacity.wait_fixed(0.005))
    database = Database()
    install(database, monkeypatch)
    file = tmp_path / "raytenant.yaml"
    file.write_text(FILE)
    with served() as one, served() as two:
        database.endpoints = {"ray_one": RayEndpoint(one.address), "ray_two": RayEndpoint(two.address)}
        yield World(one, two, database, file)
