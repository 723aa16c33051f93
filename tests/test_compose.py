"""`docker-compose.yaml`, as far as it can be known without containers."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml
from airflow.cli.cli_parser import get_parser
from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag

from airflow_provider_raytenant import tenant_file
from airflow_provider_raytenant.hooks.ray import RayHook
from stack.deployment import ROOT, cluster_ray

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
AIRFLOW = {name: service for name, service in SERVICES.items() if "build" in service}
ENVIRONMENT: dict[str, str] = COMPOSE["x-airflow"]["environment"]


def test_the_controller_stands_beside_airflows_four_processes() -> None:
    assert set(AIRFLOW) == {
        "migrated", "api-server", "scheduler", "dag-processor", "triggerer", "controller",
    }  # fmt: skip
    assert set(SERVICES) - set(AIRFLOW) == {"postgres", "ray-head"}


@pytest.mark.parametrize("name", AIRFLOW)
def test_every_command_is_one_of_airflows(name: str) -> None:
    program, *arguments = AIRFLOW[name]["command"]
    assert program == "airflow"
    assert callable(get_parser().parse_args(arguments).func)


@pytest.mark.parametrize("variable", [name for name in ENVIRONMENT if name.startswith("AIRFLOW__")])
def test_every_setting_is_one_that_airflow_knows(variable: str) -> None:
    _, section, option = variable.split("__", 2)
    if section == "RAYTENANT":
        assert option == "CONFIG_FILE"
    else:
        assert option.lower() in conf.configuration_description[section.lower()]["options"]


def test_every_file_that_is_mounted_is_there_and_every_volume_is_declared() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"], (
                mount
            )


def test_whom_a_service_waits_for_is_there() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES) - {name}
    used = re.findall(r"http://([a-z0-9-]+):|@([a-z]+)/", json.dumps(ENVIRONMENT))
    names = {one or other for one, other in used} - {"localhost"}
    assert names == {"api-server", "ray-head", "postgres"}


def test_ray_knows_its_options_and_airflow_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    program, command, *options = shlex.split(SERVICES["ray-head"]["command"])
    assert (program, command) == ("ray", "start")
    # Not all of them stand in its help.
    (known,) = cluster_ray().parent.parent.glob("lib/python3*/site-packages/ray/scripts/scripts.py")
    for option in options:
        assert f'"{option.split("=")[0]}"' in known.read_text()
    monkeypatch.setenv("AIRFLOW_CONN_RAY_SHARED", ENVIRONMENT["AIRFLOW_CONN_RAY_SHARED"])
    assert RayHook("ray_shared").endpoint().token == SERVICES["ray-head"]["environment"]["RAY_AUTH_TOKEN"]


def test_its_dag_is_right_by_its_tenant_file(monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = ROOT / "docker" / "raytenant.yaml"
    assert set(tenant_file.load(str(tenants)).tenants) == {"acme", "globex"}
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", str(tenants))
    bag = DagBag(str(ROOT / "docker" / "dags"))
    assert bag.import_errors == {}
    assert {task.pool for task in bag.dags["hello"].tasks} == {"ray.acme", "ray.globex"}
