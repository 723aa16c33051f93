"""Finding the processes that the faults kill."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import psutil

from airflow_provider_raytenant.local.processes import scope_pids
from tests.faults.world import Run, World, until


def kill(*pids: int) -> None:
    """SIGKILL; one that is gone already is fine."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def task_process(run: Run, timeout: float = 60.0) -> psutil.Process:
    """The process that executes the run's task on the worker; its title names the task instance."""

    def found() -> psutil.Process | None:
        task = run.task()
        title = f"airflow worker -- {task.ti_id}" if task else "none yet"
        return next((process for process, line in _lines() if line.startswith(title)), None)

    return until(found, f"the worker's process of {run.name}", timeout, run.told)


def supervisor(run: Run) -> psutil.Process:
    """The process of Ray's supervisor of the run's job: the nearest of Ray's workers above it."""
    (pid,) = run.pids()
    for process in psutil.Process(pid).parents():
        if process.cmdline()[0].startswith("ray::"):
            return process
    raise AssertionError(f"no worker of Ray above process {pid}")


def dashboard(world: World) -> psutil.Process:
    """The head's dashboard process."""
    for pid in scope_pids(world.stack.ray.head.service.mark):
        process = psutil.Process(pid)
        if any(part.endswith("dashboard/dashboard.py") for part in process.cmdline()):
            return process
    raise AssertionError("the head has no dashboard")


def _lines() -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            yield process, " ".join(process.cmdline())
