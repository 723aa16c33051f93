"""Starting runs and the controller, and reading what became of them, for the end-to-end tests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from airflow_provider_raytenant.local.processes import marked_environment
from stack.stack import Stack

WAIT = 240.0
"""Seconds that a run of a small job may take: on two busy cores, beside ten others, with room to spare."""


def start(
    stack: Stack, dag_id: str, date: datetime | None = None, conf: Mapping[str, Any] | None = None
) -> str:
    """Start a run of an unpaused DAG; its run id."""
    stack.api.wait_dag(dag_id)
    stack.api.unpause(dag_id)
    return stack.api.trigger_run(dag_id, date, conf)


def finish(stack: Stack, dag_id: str, run_id: str, timeout: float = WAIT) -> str:
    """Wait for a run's end; its state."""
    return str(stack.api.wait_run(dag_id, run_id, timeout)["state"])


def ended(stack: Stack, started: Mapping[str, str], dag_id: str) -> tuple[str, str]:
    """Wait for the run that was started with the others: run id and state."""
    return started[dag_id], finish(stack, dag_id, started[dag_id])


def jobs(stack: Stack, run_id: str, dag_id: str) -> list[dict[str, Any]]:
    """The Ray jobs of a run, the oldest first."""
    found = [
        job
        for job in stack.ray.api("GET", "/api/jobs/")
        if (job["metadata"] or {}).get("raytenant.run_id") == run_id
        and job["metadata"]["raytenant.dag_id"] == dag_id
    ]
    return sorted(found, key=lambda job: job["start_time"])


def until(condition: Callable[[], bool], what: str, timeout: float = 60.0) -> float:
    """Wait until a condition holds; the seconds it took."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout:
            raise AssertionError(f"{what} did not come about within {timeout:g} s")
        time.sleep(0.2)
    return time.monotonic() - started


def log(stack: Stack, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
    """A try's log; shown whole when a test that read it fails."""
    text = stack.api.task_log(dag_id, run_id, task_id, try_number)
    print(f"--- log of {dag_id}.{task_id}, try {try_number}\n{text}\n---")
    return text


@contextmanager
def controller(
    stack: Stack, *options: str, output: IO[str] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """The controller as a process, killed if the test has not stopped it.

    ``output``: a file for one that says more than a pipe holds.
    """
    program = Path(sys.executable).with_name("airflow")
    with subprocess.Popen(
        [str(program), "raytenant", "controller", *options],
        env={**stack.airflow.env, **marked_environment(f"{stack.scope}/controller")},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
