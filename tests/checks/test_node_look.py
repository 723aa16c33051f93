"""What runs on the cluster, run here: on a Python of its own, as Ray's shell would."""

from __future__ import annotations

import builtins
import importlib
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from airflow_provider_raytenant.checks import node_look
from airflow_provider_raytenant.checks.probe import FOR_PIP

URL = "s3://lake/tenants/acme"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_look, "S3_SECONDS", 1)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")


def test_packages_are_found_or_missing() -> None:
    found = node_look.look({"packages": ["json", "no_such_package"], "s3": {}})
    assert found["missing"] == ["no_such_package"]
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_start_time_out_of_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_START_TIMEOUT_SECONDS", "77")
    assert node_look.look({"packages": [], "s3": {}})["start_timeout"] == "77"


def test_an_s3_that_is_away_is_told_in_a_line(no_network: None) -> None:
    variables = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "eu"}
    said = node_look.look({"packages": [], "s3": {"acme": (URL, variables)}})["s3"]["acme"]
    assert said.startswith("EndpointConnectionError: ")
    assert len(said) <= 300


def test_credentials_that_are_missing_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    assert "NoCredentialsError" in node_look.try_s3(URL, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})


def test_a_node_without_boto3_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str) -> ModuleType:
        if name == "boto3":
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(node_look.importlib, "import_module", without)
    assert node_look.try_s3(URL, {}) == "no boto3"


def test_every_node_is_asked_the_head_first_and_who_is_late_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = FakeRayModule()
    real = importlib.import_module
    modules: dict[str, Any] = {
        "ray": ray,
        "ray.util.scheduling_strategies": SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft)
        ),
    }
    monkeypatch.setattr(node_look.importlib, "import_module", lambda name: modules.get(name) or real(name))
    node_look.main(json.dumps({"packages": FOR_PIP, "seconds": 5, "s3": {}}))
    line = capsys.readouterr().out.splitlines()[-1]
    report = json.loads(line.removeprefix(node_look.MARK))
    assert (report["alive"], report["asked"], list(report["nodes"])) == (3, 3, ["head", "fast"])
    assert ray.asked == [("head", False), ("fast", False), ("late", False)]


class FakeRayModule:
    """So much of Ray as a driver here needs; the node ``late`` never answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def init(self, **_options: Any) -> None:
        pass

    def nodes(self) -> builtins.list[dict[str, Any]]:
        rows = [("fast", True, {}), ("dead", False, {}), ("head", True, {"node:__internal_head__": 1.0})]
        rows.append(("late", True, {}))
        return [{"NodeID": name, "Alive": alive, "Resources": has} for name, alive, has in rows]

    def remote(self, **options: Any) -> Any:
        assert options["num_cpus"] == 0
        return lambda function: SimpleNamespace(options=lambda **where: self._task(function, **where))

    def _task(self, function: Any, scheduling_strategy: tuple[str, bool]) -> Any:
        self.asked.append(scheduling_strategy)
        return SimpleNamespace(remote=lambda spec: (scheduling_strategy[0], json.dumps(function(spec))))

    def wait(self, refs: Any, num_returns: int, timeout: float) -> Any:
        assert (num_returns, timeout) == (len(refs), 5)
        return [ref for ref in refs if ref[0] != "late"], [ref for ref in refs if ref[0] == "late"]

    def get(self, ref: Any) -> Any:
        return json.loads(ref[1])
