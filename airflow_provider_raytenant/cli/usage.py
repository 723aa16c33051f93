"""``airflow raytenant usage``: who held how many slots for how long, and what is too small for a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

import yaml

from airflow_provider_raytenant.cli.jobs import duration
from airflow_provider_raytenant.cli.output import console, one_clear_error, print_rows
from airflow_provider_raytenant.cli.tenants import read
from airflow_provider_raytenant.database.usage import read_tries
from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.usage_report import (
    TINY_BELOW,
    Line,
    Span,
    TinyTask,
    Totals,
    UsageReport,
    pools_of,
)
from airflow_provider_raytenant.exceptions import RequestError

_NUMBERS: Final = ("slot-hours", "tries", "mean wait", "worst", "used", "known", "work", "rest", "slots")


@one_clear_error
def usage(args: Any) -> None:
    """Print the report of the time that ends now."""
    seconds = duration("--since", args.since)
    _, file = read(args)
    if args.tenant is not None and args.tenant not in file.tenants:
        raise RequestError(f"--tenant: found {args.tenant!r}; allowed: {', '.join(sorted(file.tenants))}")
    now = datetime.now(UTC)
    span = Span(now - timedelta(seconds=seconds), now)
    owners = {pool: owner for pool, owner in pools_of(file).items() if args.tenant in (None, owner.tenant)}
    report = UsageReport(owners, span)
    for one in read_tries(owners, span):
        report.add(one)
    if args.output == "table":
        _print(report, args.by, span)
    else:
        _dump(report, args.by, span, args.output)


def _dump(report: UsageReport, by: str, span: Span, output: str) -> None:
    lines = report.by_dag() if by == "dag" else report.by_tenant()
    known = {
        "since": span.begin.isoformat(timespec="seconds"),
        "until": span.end.isoformat(timespec="seconds"),
        "usage": [_row(line) for line in lines],
        "better_as_plain_tasks": [_tiny_row(task) for task in report.tiny()],
    }
    print(
        json.dumps(known, indent=2) if output == "json" else yaml.safe_dump(known, sort_keys=False).rstrip()
    )


def _row(line: Line) -> dict[str, Any]:
    """All of a line, raw: hours of slots, seconds, parts of 1."""
    sums = line.totals
    return {
        "tenant": line.tenant,
        "group": line.group,
        **({} if line.dag_id is None else {"dag_id": line.dag_id}),
        "slot_hours": sums.slot_hours,
        "tries": sums.tries,
        "mean_wait_seconds": _seconds(sums.mean_wait),
        "worst_wait_seconds": _seconds(sums.worst_wait),
        "used": sums.used,
        "used_known": sums.known,
    }


def _tiny_row(task: TinyTask) -> dict[str, Any]:
    return {
        "tenant": task.tenant,
        "dag_id": task.dag_id,
        "task_id": task.task_id,
        "tries": task.tries,
        "median_work_seconds": task.work,
        "median_rest_seconds": task.rest,
        "slots": task.slots,
    }


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _print(report: UsageReport, by: str, span: Span) -> None:
    out = console()
    length = format_duration((span.end - span.begin).total_seconds())
    since = f"since {span.begin:%Y-%m-%d %H:%M} UTC ({length})"
    tenants = report.by_tenant()
    if not tenants:
        out.print(f"No slot of the tenants' pools was held {since}.")
        return
    out.print(f"Slots held {since}\n")
    rows = _tree(tenants, report.by_dag()) if by == "dag" else map(_tenant_cells, tenants)
    print_rows(list(rows), "table", numbers=_NUMBERS)
    if any(line.totals.seen_slot_time for line in tenants):
        out.print("\nused: the part of the slot-hours that the jobs' peaks in Ray would have needed;")
        out.print("known: the part of the slot-hours for which there is a peak.")
    tiny = report.tiny()
    if tiny:
        out.print(
            f"\nBetter off as plain Airflow tasks: under {TINY_BELOW:g} s of work, more beside it (medians)"
        )
        print_rows([_tiny_cells(task) for task in tiny], "table", numbers=_NUMBERS)


def _tree(tenants: Sequence[Line], dags: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Each tenant's group, and its DAGs below it."""
    totals = {line[:2]: line.totals for line in tenants}
    for (tenant, group), lines in groupby(dags, key=lambda line: line[:2]):
        yield {"tenant, dag": f"{tenant}, {group}", **_cells(totals[tenant, group])}
        for line in lines:
            yield {"tenant, dag": f"  {line.dag_id}", **_cells(line.totals)}


def _tenant_cells(line: Line) -> dict[str, Any]:
    return {"tenant": line.tenant, "group": line.group, **_cells(line.totals)}


def _cells(sums: Totals) -> dict[str, Any]:
    return {
        "slot-hours": f"{sums.slot_hours:.2f}",
        "tries": sums.tries,
        "mean wait": _span(sums.mean_wait),
        "worst": _span(sums.worst_wait),
        "used": None if sums.used is None else f"{sums.used:.0%}",
        "known": f"{sums.known:.0%}",
    }


def _tiny_cells(task: TinyTask) -> dict[str, Any]:
    return {
        "tenant": task.tenant,
        "task": f"{task.dag_id}.{task.task_id}",
        "tries": task.tries,
        "work": f"{task.work:.1f}s",
        "rest": f"{task.rest:.1f}s",
        "slots": task.slots,
    }


def _span(value: timedelta | None) -> str | None:
    return None if value is None else format_duration(value.total_seconds())
