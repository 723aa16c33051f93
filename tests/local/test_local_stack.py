"""The whole of ``stack``: PostgreSQL and Airflow for real, and a start that fails or is called off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.local.local_helpers import REPOSITORY, command_lines

from airflow_provider_raytenant.local.errors import ServiceDied
from airflow_provider_raytenant.local.processes import scope_pids, start_service, wait_until
from stack.airflow_stack import AirflowStack
from stack.postgres import Postgres
from stack.stack import Stack, end_left_over

pytestmark = pytest.mark.stack

DAG_FILE = """
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("hello", schedule=None):
    BashOperator(task_id="greet", bash_command="echo good morning $GREETING")
"""
FAKE_RAY = "#!/bin/sh\nsleep {seconds}\necho no Ray today\nexit 1\n"


def test_a_dag_runs_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "hello.py").write_text(DAG_FILE)
    scope = f"test-{os.getpid()}"
    extra = {"GREETING": "Ms Ada"}
    with Postgres.start(tmp_path / "postgres", scope=scope) as postgres:
        airflow = AirflowStack(
            tmp_path / "airflow",
            tmp_path / "dags",
            postgres.url,
            {"core.parallelism": "4"},
            extra_env=extra,
            scope=scope,
        )
        with airflow:
            assert set(airflow.health().values()) == {"healthy"}
            assert airflow.cli("config", "get-value", "core", "parallelism").stdout.strip() == "4"
            api = airflow.api()
            api.wait_dag("hello")
            api.unpause("hello")
            run_id = api.trigger_run("hello", conf={"a": 1})

            assert api.wait_run("hello", run_id)["state"] == "success", api.task_log(
                "hello", run_id, "greet", 1
            )
            assert api.dag_run("hello", run_id)["conf"] == {"a": 1}
            assert api.xcom("hello", run_id, "greet") == "good morning Ms Ada"
            assert "good morning Ms Ada" in api.task_log("hello", run_id, "greet", 1)
            assert api.import_errors() == []
            assert api.pools()["default_pool"]["slots"] == 128

            airflow.kill("triggerer")
            airflow.restart("triggerer")
            pids = scope_pids(scope)
            assert len(pids) > 5
    assert scope_pids(scope) == []
    assert command_lines(str(tmp_path)) == []
    assert not postgres.root.exists()


def fake_ray(tmp_path: Path, seconds: float) -> Path:
    program = tmp_path / "ray"
    program.write_text(FAKE_RAY.format(seconds=seconds))
    program.chmod(0o755)
    return program


def test_a_part_that_fails_ends_the_others(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "s", tmp_path, ray_binary=fake_ray(tmp_path, 0.5))

    with pytest.raises(ServiceDied, match="no Ray today"):
        stack.start()

    assert scope_pids(stack.scope) == []
    assert command_lines(str(tmp_path / "s")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_called_off_leaves_nothing(tmp_path: Path, number: int) -> None:
    program = (
        "from pathlib import Path; from stack.stack import Stack\n"
        f"with Stack(Path({str(tmp_path / 's')!r}), Path({str(tmp_path)!r}),"
        f" ray_binary=Path({str(fake_ray(tmp_path, 60))!r})): pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    state = tmp_path / "s" / "stack.json"
    wait_until(state.exists, timeout=30, what="the stack's state file")
    scope = json.loads(state.read_text())["scope"]
    wait_until(lambda: len(scope_pids(scope)) > 1, timeout=30, what="the first services")

    process.send_signal(number)

    assert process.wait(timeout=30) != 0
    assert scope_pids(scope) == []
    assert not state.exists()


def test_what_a_killed_program_left_up_is_ended(tmp_path: Path) -> None:
    service = start_service("probe", ["sleep", "300"], log=tmp_path / "log", scope="stack-left")
    (tmp_path / "stack.json").write_text(json.dumps({"scope": "stack-left"}))

    assert end_left_over(tmp_path)

    assert not service.running
    assert not end_left_over(tmp_path)
