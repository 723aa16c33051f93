"""Starts of the whole stack that fail or are called off; the end-to-end tests have the one that works."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_raytenant.local.errors import ServiceDied
from airflow_provider_raytenant.local.processes import scope_pids, start_service, wait_until
from stack.stack import Stack, end_left_over
from tests.local.local_helpers import REPOSITORY, command_lines

pytestmark = pytest.mark.stack

FAKE_RAY = "#!/bin/sh\nsleep {seconds}\necho no Ray today\nexit 1\n"


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
