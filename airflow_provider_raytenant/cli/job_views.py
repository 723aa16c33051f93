"""How jobs look: a block for each tenant, two lines for each job, 80 columns; and all about one job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import yaml
from rich.text import Text

from airflow_provider_raytenant.cli.output import console
from airflow_provider_raytenant.control.clusters import ClusterJobs
from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.sweep import OwnJob, Standing, pool_of, short_id, standing, task_state
from airflow_provider_raytenant.domain.wording import count

_MEANINGS: Mapping[Standing, str] = {
    Standing.WANTED: "its task waits for it",
    Standing.FOR_RETRY: "the next try of its task goes on with it, or stops it",
    Standing.UNCLEAR: "its task was cleared or is being reset; the next sweep tells",
    Standing.ORPHAN: "an orphan: no task waits for it, and the next sweep stops it",
}
_STYLES = {"RUNNING": "green", "PENDING": "yellow", "FAILED": "red", "SUCCEEDED": "blue", "STOPPED": "dim"}
_COLUMNS = ("job", "ray", "age", "airflow", "task")


def row(job: OwnJob, cluster: ClusterJobs, now: float) -> dict[str, Any]:
    """All that a list says of a job. ``submitted`` and ``ended`` are in UTC."""
    own, info = job.identity, job.info
    since = info.start_time if job.live else info.end_time or info.start_time
    return {
        "tenant": own.tenant,
        "job": short_id(job),
        "ray": info.status.value,
        "age": None if since is None else format_duration(now - since / 1000),
        "airflow": task_state(job, cluster.tasks),
        "orphan": job.live and standing(job, cluster.tasks) is Standing.ORPHAN,
        "task": job.task,
        "run_id": own.run_id,
        "try": own.try_number,
        "slots": job.slots,
        "pool": pool_of(job, cluster.tasks),
        "cluster": cluster.cluster,
        "submitted": _instant(info.start_time),
        "ended": _instant(info.end_time),
        "submission_id": job.submission_id,
    }


def print_jobs(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of :func:`row`, sorted by tenant, as a list for people."""
    widths = {c: max(len(c), *(len(_cell(r, c)) for r in rows)) for c in _COLUMNS[:-1]}
    out = console()
    for number, (tenant, group) in enumerate(groupby(rows, key=lambda r: r["tenant"])):
        members = list(group)
        live = [r for r in members if r["ended"] is None or r["ray"] in ("PENDING", "RUNNING")]
        slots = sum(r["slots"] or 0 for r in live)
        out.print(
            ("\n" if number else "") + f"tenant {tenant}: {count(len(live), 'live job')}, "
            f"{count(slots, 'slot')}"
        )
        out.print("  " + "  ".join([*(c.ljust(widths[c]) for c in widths), "task"]), style="dim")
        for r in members:
            out.print(_line(r, widths), soft_wrap=True)
            where = f"try {r['try']} of {r['run_id']}"
            out.print(Text(f"  {' ' * widths['job']}  {where}", "dim"), soft_wrap=True)
    if any(r["orphan"] for r in rows):
        out.print(f"\n! {_MEANINGS[Standing.ORPHAN]}")


def _line(r: Mapping[str, Any], widths: Mapping[str, int]) -> Text:
    line = Text("! " if r["orphan"] else "  ", "bold red")
    for column, width in widths.items():
        style = _STYLES.get(r["ray"], "") if column == "ray" else "red" if r["orphan"] else ""
        line.append(_cell(r, column).ljust(width) + "  ", style if column in ("ray", "airflow") else "")
    return line.append(r["task"], "bold")


def details(job: OwnJob, cluster: ClusterJobs, now: float, output: str) -> None:
    """Everything about one job, as lines for people, JSON or YAML."""
    own, info = job.identity, job.info
    verdict = standing(job, cluster.tasks)
    known: dict[str, Any] = {
        **row(job, cluster, now),
        "dag_id": own.dag_id,
        "task_id": own.task_id,
        "map_index": own.map_index,
        "ti_id": own.ti_id,
        "standing": verdict.value if job.live else "ended",
        "message": info.message.strip() or None,
        "error_type": info.error_type,
        "exit_code": info.exit_code,
        "footprint": _footprint(job),
        "node": info.driver_node_id,
        "dashboard": cluster.endpoint.job_page(job.submission_id),
    }
    if output == "json":
        print(json.dumps(known, indent=2))
        return
    if output == "yaml":
        print(yaml.safe_dump(known, sort_keys=False), end="")
        return
    status = f"{info.status.value} on cluster {cluster.cluster}"
    if known["age"] is not None:
        status += f", submitted {known['age']} ago" if job.live else f", ended {known['age']} ago"
    lines = {
        "submission id": job.submission_id,
        "tenant": own.tenant,
        "task": job.task,
        "run": own.run_id,
        "try": f"{own.try_number}, task instance {own.ti_id}",
        "ray": status,
        "submitted": known["submitted"],
        "ended": known["ended"],
        "airflow": known["airflow"] + (f"; {_MEANINGS[verdict]}" if job.live else ""),
        "pool": known["pool"] and f"{known['pool']}, {count(job.slots or 0, 'slot')}",
        "footprint": known["footprint"],
        "node": info.driver_node_id,
        "exit code": info.exit_code,
        "error type": info.error_type,
        "dashboard": known["dashboard"],
        "message": known["message"],
    }
    for name, value in lines.items():
        if value is not None:
            text = _plain(str(value)).replace("\n", "\n" + " " * 15)
            console().print(Text(f"{name:13}  ", "dim").append(text, "not dim"), soft_wrap=True)


def _footprint(job: OwnJob) -> str | None:
    text = job.about("footprint")
    try:
        data = json.loads(text or "null")
        return str(Resources.from_json(data)) if isinstance(data, Mapping) else text
    except (ValueError, AttributeError, RecursionError):
        # Metadata of a job that was made by hand: as it is.
        return text


def _plain(text: str) -> str:
    """Without codes that a terminal obeys: a message quotes the job's output."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _cell(r: Mapping[str, Any], column: str) -> str:
    return "-" if r[column] is None else str(r[column])


def _instant(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
