"""The runner as on the cluster: a copy of the folder named `raytenant_runner`, started by `sh -c`."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_raytenant.runner.end_record import LogSplitter

SOURCE = Path(__file__).resolve().parents[2] / "airflow_provider_raytenant" / "runner"
# Any Python from 3.10 on may be put to the test: RAYTENANT_RUNNER_PYTHON=/usr/bin/python3.10 pytest ...
PYTHON = os.environ.get("RAYTENANT_RUNNER_PYTHON", sys.executable)
BOUND_SECONDS = 30.0


class Run:
    """A runner in a session of its own, with stdout and stderr appended to one log, as Ray starts it."""

    def __init__(self, packages: Path, folder: Path, command: str, environment: dict[str, str]) -> None:
        self.log_path = folder / "job.log"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        # `also_path`: a folder more on Python's path, as another of the job's packages would be.
        path = ":".join(filter(None, (str(self.work), str(packages), environment.pop("also_path", ""))))
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                shell=True,
                cwd=self.work,
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.temporary), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> int:
        return self.process.wait(BOUND_SECONDS)

    @property
    def text(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def split(self) -> tuple[list[str], dict[str, object]]:
        splitter = LogSplitter()
        lines = splitter.feed(self.text) + splitter.finish()
        assert splitter.record is not None, self.text
        return lines, splitter.record

    @property
    def lines(self) -> list[str]:
        return self.split()[0]

    @property
    def record(self) -> dict[str, object]:
        return self.split()[1]

    def wait_for_line(self, line: str) -> None:
        wait_until(lambda: line in self.text.split("\n"), f"{line!r} in the log")

    def pids(self, name: str) -> list[int]:
        """Pids a job wrote to a file of its working directory, once there are any."""
        file = self.work / name
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), f"the file {name}")
        return [int(word) for word in file.read_text().split()]

    def kill(self) -> None:
        for pid in (*_session(self.process.pid), self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(BOUND_SECONDS)


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader:
                found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], bool], what: str, seconds: float = BOUND_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH that holds the package `raytenant_runner`."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copytree(SOURCE, folder / "raytenant_runner", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


Start = Callable[..., Run]


@pytest.fixture
def start(packages: Path, tmp_path: Path) -> Iterator[Start]:
    """start(*arguments, **environment) starts a runner; what is left of it at the end is killed."""
    runs: list[Run] = []

    def _start(*arguments: str, **environment: str) -> Run:
        words = shlex.join([PYTHON, "-m", "raytenant_runner", *arguments])
        folder = tmp_path / str(len(runs))
        folder.mkdir(exist_ok=True)
        runs.append(Run(packages, folder, f"exec {words}", environment))
        return runs[-1]

    yield _start
    for run in runs:
        run.kill()


@pytest.fixture
def run(start: Start) -> Start:
    """As `start`, and waits for the runner's end."""

    def _run(*arguments: str, **environment: str) -> Run:
        started = start(*arguments, **environment)
        started.wait()
        return started

    return _run


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def alive() -> Callable[[int], bool]:
    return is_alive


@pytest.fixture
def runner_python() -> str:
    return PYTHON
