"""A world in which the doctor finds nothing wrong but what a test puts into it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from airflow_provider_raytenant.checks import cluster, diagnosis, probe
from airflow_provider_raytenant.checks.airflow_side import AirflowSettings
from airflow_provider_raytenant.checks.node_look import MARK
from airflow_provider_raytenant.database import heartbeats
from airflow_provider_raytenant.domain.heartbeat import Heartbeat
from airflow_provider_raytenant.tenant_file import load
from tests.fakes.ray_server import FakeJob, FakeRay, node
from tests.fakes.world import World

GIB = 1024**3
SETTINGS = AirflowSettings(64, 32, 1000, 30.0, multi_team=False)


@dataclass
class Patient:
    """``report`` is what the doctor's job tells on both clusters."""

    world: World
    patch: pytest.MonkeyPatch
    types: dict[str, str] = field(default_factory=lambda: {"ray_one": "ray", "ray_two": "ray"})
    beats: dict[str, list[Heartbeat]] = field(
        default_factory=lambda: {
            heartbeats.TRIGGERER: [Heartbeat("host-a", True, 3.0)],
            heartbeats.CONTROLLER: [Heartbeat("host-b", True, 3.0)],
        }
    )
    report: dict[str, Any] = field(
        default_factory=lambda: {
            "python": "3.11.9",
            "alive": 2,
            "asked": 2,
            "nodes": {name: sound_node() for name in ("a", "b")},
        }
    )

    def install(self) -> None:
        """Two token-protected clusters with an idle head and a worker, pools in step."""
        world, database = self.world, self.world.database
        for name, fake in (("ray_one", world.one), ("ray_two", world.two)):
            fake.token = "of-the-tests"
            fake.nodes = [node("head", cpus=0, memory=GIB, head=True), node("worker", cpus=4, memory=4 * GIB)]
            fake.on_submit = self._tell
            database.endpoints[name] = replace(database.endpoints[name], token=fake.token)
        self.patch.setattr(cluster, "read_type", lambda conn_id: self.types[conn_id])
        self.patch.setattr(diagnosis, "read_heartbeats", self._read_heartbeats)
        self.patch.setattr(diagnosis, "read_pools", database.read_pools)
        self.patch.setattr(diagnosis, "read_largest_requests", database.read_largest_requests)
        self.settings(SETTINGS)
        for name in ("_INTERVAL", "_SETTLED"):
            self.patch.setattr(probe, name, 0.01)
        self.sync()

    def settings(self, wanted: AirflowSettings) -> None:
        self.patch.setattr(diagnosis, "read_settings", lambda: wanted)

    def sync(self) -> None:
        """Let the pools be what the file asks."""
        file = load(str(self.world.file))
        from airflow_provider_raytenant.domain.pool_plan import plan
        from airflow_provider_raytenant.ray_api.nodes import parse_nodes

        def nodes(fake: FakeRay) -> Any:
            return parse_nodes({"data": {"result": {"result": fake.nodes}}})

        read = {"one": nodes(self.world.one), "two": nodes(self.world.two)}
        self.world.database.write_pools(lambda now: plan(file, read, now.existing, {}))

    def _read_heartbeats(self, job_type: str) -> list[Heartbeat]:
        self.world.database.ask()
        return self.beats.get(job_type, [])

    def _tell(self, job: FakeJob) -> None:
        job.run()
        job.write("a line of Ray's\n\n" + MARK + json.dumps(self.report) + "\n")
        job.end()


def sound_node(**more: Any) -> dict[str, Any]:
    return {"python": "3.11.9", "missing": [], "start_timeout": None, "s3": {}, **more}


@pytest.fixture
def patient(world: World, monkeypatch: pytest.MonkeyPatch) -> Patient:
    made = Patient(world, monkeypatch)
    made.install()
    return made
