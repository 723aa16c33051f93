"""``airflow raytenant controller`` as a process: its lines, its signals, its exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_raytenant.cli.controller import controller
from tests.fakes.world import FILE

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \S.*")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "raytenant.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def process(file: Path, database: str, ray: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The controller; its output comes line by line, and it is gone afterwards."""
    program = Path(sys.executable).with_name("airflow")
    connection = json.dumps({"conn_type": "ray", "host": ray})
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(file.parent / "home"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW_CONN_RAY_ONE": connection,
        "AIRFLOW_CONN_RAY_TWO": connection,
        "AIRFLOW__RAYTENANT__CONFIG_FILE": str(file),
    }
    command = [str(program), "raytenant", "controller", "--interval", "0.5", *options]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        # A test that fails must not leave it, nor wait for its next line for ever.
        too_late = threading.Timer(60, started.kill)
        too_late.start()
        try:
            yield started
        finally:
            too_late.cancel()
            started.kill()


def line_with(started: subprocess.Popen[str], words: str) -> list[str]:
    """Read standard output up to a line with these words; all the lines."""
    assert started.stdout is not None
    lines = []
    for line in started.stdout:
        lines.append(line.rstrip("\n"))
        if words in line:
            return lines
    pytest.fail(f"no line with {words!r} in {lines}; {started.stderr and started.stderr.read()}")


def test_sigterm_ends_it_at_once_though_database_and_ray_are_silent(file: Path, silent: int) -> None:
    database = f"postgresql+psycopg2://airflow:a-secret@127.0.0.1:{silent}/airflow"
    with process(file, database, f"http://127.0.0.1:{silent}") as started:
        lines = line_with(started, "a round every 0.5 s")
        begun = time.monotonic()
        started.send_signal(signal.SIGTERM)
        rest, errors = started.communicate(timeout=30)
        took = time.monotonic() - begun
        assert (started.returncode, errors) == (0, "")
        lines += rest.splitlines()
    assert took < 2
    assert lines[-1].endswith("controller: stopped")
    assert all(LINE.fullmatch(line) for line in lines), lines


def test_database_and_ray_away_are_a_line_each_and_no_traceback(file: Path) -> None:
    # Port 9 of loopback: nobody listens there.
    database = "postgresql+psycopg2://airflow:a-secret@127.0.0.1:9/airflow"
    with process(file, database, "http://127.0.0.1:9") as started:
        lines = line_with(started, "cluster one: ")
        lines += line_with(started, "cluster two: ") if not any("cluster two" in x for x in lines) else []
        lines += line_with(started, "database: ") if not any(" database" in x for x in lines) else []
        file.write_text(FILE + "  umbrella: {}\n")
        # Some more rounds, all of which fail.
        lines += line_with(started, "tenant file: read again")
        started.send_signal(signal.SIGINT)
        rest, errors = started.communicate(timeout=30)
        assert (started.returncode, errors) == (0, "")
    lines += rest.splitlines()
    assert len(lines) == 6, lines
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert "a-secret" not in str(lines)


def test_a_wrong_file_at_the_beginning_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    file.write_text("deployment: X\n")
    with pytest.raises(SystemExit) as end:
        controller(Namespace(file=str(file), interval="5", older_than="7d", once=False))
    assert end.value.code == 1
    assert f"{file}: clusters: found nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("interval", "0", "--interval: found '0'; allowed: seconds, 0.5 to 3600"),
        ("interval", "5m", "--interval: found '5m'; allowed: seconds, 0.5 to 3600"),
        ("interval", "nan", "--interval: found 'nan'; allowed: seconds, 0.5 to 3600"),
        ("older_than", "7", "--older-than: found '7'; allowed: a whole number with a unit"),
    ],
)
def test_a_wrong_option_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], file: Path, option: str, value: str, words: str
) -> None:
    known = {"file": str(file), "interval": "5", "older_than": "7d", "once": True, option: value}
    with pytest.raises(SystemExit) as end:
        controller(Namespace(**known))
    assert end.value.code == 1
    assert words in capsys.readouterr().err
