"""`make demo`: two tenants on one Ray cluster, queued by Airflow pools, from nothing to a table.

Run it as ``python -m stack.demo [--keep] [--directory DIR]``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stack.airflow_stack import CONTROLLER
from stack.deployment import (
    NODE_ENV,
    ROOT,
    airflow_environment,
    cluster_ray,
    seed_flights,
    write_tenant_file,
)
from stack.rest import FINISHED_RUN
from stack.stack import RaySize, Stack, end_left_over
from stack.usage import UsageSampler

ACME, GLOBEX = "acme_daily_delays", "globex_delay_model"
FIRST_DAY, LAST_DAY = "2013-01-01", "2013-01-14"
LIVE_DAYS = (20, 21)
RUN_TIMEOUT = 300.0
_KEPT = ROOT / ".run" / "demo-directory"
"""Where `--keep` notes its directory for `--down`."""

CAPACITY = 12
"""Slots of the cluster: so many CPUs, and 512 MiB for each."""

_RAY = RaySize(cpus=CAPACITY, memory_bytes=CAPACITY * 512 * 1024**2, env=NODE_ENV)

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Row:
    """One task of the last table; times in seconds."""

    tenant: str
    task: str
    submission_id: str
    polars: str
    queued: float
    ran: float


class Progress:
    """Prints what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        console.print(f"[{time.monotonic() - self._started:6.1f} s] {text}", markup=False)


def main() -> int:
    """Run the demo; exit code 0 if every run succeeded and the cluster was never asked for too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything up at the end")
    parser.add_argument("--directory", type=Path, help="where data and logs go; default: a new folder")
    parser.add_argument("--down", action="store_true", help="end what --keep left up, and nothing else")
    arguments = parser.parse_args()
    if arguments.down:
        return _down(arguments.directory)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="raytenant-demo-"))
    say = Progress()
    say(f"Data and logs: {directory}")
    stack = Stack(
        directory,
        ROOT / "dags",
        ray_binary=cluster_ray(),
        ray=_RAY,
        tenant_file=write_tenant_file(directory / "raytenant.yaml"),
        airflow_env=airflow_environment,
        keep=arguments.keep,
        progress=say,
    )
    try:
        with stack:
            return _run(stack, say, arguments.keep)
    except KeyboardInterrupt:
        say("Interrupted; everything that was started has ended.")
        return 130


def _down(directory: Path | None) -> int:
    directory = directory or (Path(_KEPT.read_text()) if _KEPT.exists() else None)
    ended = directory is not None and end_left_over(directory)
    _KEPT.unlink(missing_ok=True)
    console.print("Ended." if ended else "Nothing was up.")
    return 0


def _run(stack: Stack, say: Progress, keep: bool) -> int:
    say(f"{seed_flights(stack)} objects of the 2013 New York flights are in S3.")
    console.print(stack.airflow.cli("raytenant", "tenants", "list").stdout)
    console.print(stack.airflow.cli("raytenant", "pools", "sync").stdout)
    # From here on the sizes follow what waits.
    stack.airflow.start_process(CONTROLLER, options=("--interval", "2"))
    api = stack.api
    for dag_id in (ACME, GLOBEX):
        api.wait_dag(dag_id)
    with UsageSampler(stack.ray, interval=1.0) as usage:
        runs = [(GLOBEX, _trigger(stack, GLOBEX, None))]
        runs += [(ACME, _trigger(stack, ACME, datetime(2013, 1, day, tzinfo=UTC))) for day in LIVE_DAYS]
        say(f"Runs: {GLOBEX} once, {ACME} for {len(LIVE_DAYS)} days.")
        span = ("--from-date", FIRST_DAY, "--to-date", LAST_DAY)
        stack.airflow.cli("backfill", "create", "--dag-id", ACME, *span, "--max-active-runs", "14")
        say(f"Backfill: {ACME} from {FIRST_DAY} to {LAST_DAY}.")
        _wait_for_all(stack, usage, say, len(runs) + 14)
    return _report(stack, usage, keep)


def _trigger(stack: Stack, dag_id: str, logical_date: datetime | None) -> str:
    stack.api.unpause(dag_id)
    return stack.api.trigger_run(dag_id, logical_date)


def _all_runs(stack: Stack) -> list[tuple[str, dict[str, Any]]]:
    return [(dag_id, run) for dag_id in (ACME, GLOBEX) for run in stack.api.dag_runs(dag_id)]


def _wait_for_all(stack: Stack, usage: UsageSampler, say: Progress, expected: int) -> None:
    """Wait for every run; a line for each that ends and at least one every ten seconds."""
    started = last_told = time.monotonic()
    told = -1
    while time.monotonic() - started < RUN_TIMEOUT:
        runs = _all_runs(stack)
        ended = [run for _, run in runs if run["state"] in FINISHED_RUN]
        if len(ended) != told or time.monotonic() - last_told > 10:
            told, last_told = len(ended), time.monotonic()
            say(f"{told} of {expected} runs have ended; {_live(usage)}")
        if len(ended) == len(runs) >= expected:
            return
        time.sleep(2.5)
    raise TimeoutError(f"{expected - told} of {expected} runs did not end within {RUN_TIMEOUT:g} s")


def _live(usage: UsageSampler) -> str:
    if not usage.samples:
        return "nothing seen of Ray yet"
    now = usage.samples[-1]
    jobs = ", ".join(f"{count} of {tenant}" for tenant, count in sorted(now.jobs_by_tenant.items()))
    return f"live Ray jobs: {jobs or 'none'}; {now.slots} of {CAPACITY} slots in use"


def _report(stack: Stack, usage: UsageSampler, keep: bool) -> int:
    jobs = {job["submission_id"]: job for job in stack.ray.api("GET", "/api/jobs/")}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title="What ran", title_justify="left")
    for name in ("tenant", "task", "submission id", "polars"):
        table.add_column(name, overflow="fold", no_wrap=name != "submission id")
    for name in ("queued s", "run s"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = _rows(stack, jobs)
    for row in rows:
        table.add_row(
            row.tenant,
            row.task,
            row.submission_id,
            row.polars,
            f"{row.queued:.1f}",
            f"{row.ran:.1f}",
        )
    console.print(table, soft_wrap=False)
    peak = usage.peak
    states = Counter(run["state"] for _, run in _all_runs(stack))
    most = peak.slots if peak else 0
    console.print(
        f"Runs: {dict(states)}. Most slots in use: {most} of {CAPACITY} ({len(usage.samples)} samples)."
    )
    console.print(f"Airflow: {stack.airflow.base_url}  Ray: {stack.ray.dashboard_url}")
    if keep:
        console.print(f"Airflow's user is {stack.airflow.user}, the password {stack.airflow.password}")
        _KEPT.parent.mkdir(exist_ok=True)
        _KEPT.write_text(str(stack.directory))
        console.print("It stays up; `make demo-down` ends it.")
    return 0 if set(states) == {"success"} and 0 < most <= CAPACITY else 1


def _rows(stack: Stack, jobs: dict[str, dict[str, Any]]) -> list[Row]:
    rows = []
    for job in jobs.values():
        meta = {key.removeprefix("raytenant."): value for key, value in (job["metadata"] or {}).items()}
        if "tenant" not in meta:
            continue
        task = stack.api.task_instance(meta["dag_id"], meta["run_id"], meta["task_id"])
        result = stack.api.xcom(meta["dag_id"], meta["run_id"], meta["task_id"]) or {}
        queued = _seconds(task["scheduled_when"], task["start_date"])
        ran = (job["end_time"] - job["start_time"]) / 1000
        version = result.get("polars", "?")
        rows.append(Row(meta["tenant"], meta["task_id"], job["submission_id"], version, queued, ran))
    return sorted(rows, key=lambda row: (row.tenant, row.queued))


def _seconds(start: str | None, end: str | None) -> float:
    if start is None or end is None:
        return 0.0
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


if __name__ == "__main__":
    raise SystemExit(main())
