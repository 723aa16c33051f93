"""``airflow raytenant doctor``: everything that has to be right, tried and told."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

import yaml
from rich.text import Text

from airflow_provider_raytenant.checks.diagnosis import Scope, diagnose
from airflow_provider_raytenant.checks.finding import Finding, Level
from airflow_provider_raytenant.cli.output import console, nothing_else_on_stdout, one_clear_error

_STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILURE: "bold red"}
_LEVEL_WIDTH: Final = 9
_CHECK_WIDTH: Final = 16
_INDENT: Final = 2 + _LEVEL_WIDTH + _CHECK_WIDTH


@one_clear_error
def doctor(args: Any) -> None:
    """Print every finding; exit code 1 where there is a failure, with ``--strict`` also for a warning."""
    with nothing_else_on_stdout():
        found = asyncio.run(diagnose(args.file, Scope(args.cluster, args.tenant, not args.no_jobs)))
    counts = Counter(finding.level for finding in found)
    if args.output == "table":
        _print(found, counts)
    else:
        _dump(found, counts, args.output)
    if counts[Level.FAILURE] or (args.strict and counts[Level.WARNING]):
        raise SystemExit(1)


def _print(found: Sequence[Finding], counts: Counter[Level]) -> None:
    """A block for Airflow, each cluster and each tenant; what to do stands below what was found."""
    out = console()
    width = min(out.width, 120)
    for number, (title, group) in enumerate(groupby(found, key=_title)):
        out.print(("\n" if number else "") + title, style="bold")
        for finding in group:
            for line in _lines(finding, width):
                out.print(line, soft_wrap=True)
    out.print()
    out.print(_summary(counts), soft_wrap=True)


def _title(finding: Finding) -> str:
    if finding.tenant is not None:
        return f"tenant {finding.tenant}"
    return "Airflow" if finding.cluster is None else f"cluster {finding.cluster}"


def _lines(finding: Finding, width: int) -> Iterator[Text]:
    # What Ray or a job said may hold codes that a terminal obeys.
    first, *more = _wrapped(finding.found, width - _INDENT) or [""]
    line = Text("  ")
    line.append(finding.level.value.ljust(_LEVEL_WIDTH), _STYLES[finding.level])
    line.append(finding.check.ljust(_CHECK_WIDTH) + first)
    yield line
    for text in more:
        yield Text(" " * _INDENT + text)
    if finding.level is not Level.OK:
        for number, text in enumerate(_wrapped(finding.advice, width - _INDENT - 3)):
            yield Text(" " * _INDENT + ("   " if number else "-> ") + text, "dim")


def _wrapped(text: str, width: int) -> list[str]:
    plain = "".join(c if c.isprintable() else " " for c in text)
    return textwrap.wrap(plain, width, break_on_hyphens=False)


def _summary(counts: Counter[Level]) -> Text:
    parts = []
    for level in (Level.FAILURE, Level.WARNING):
        plural = "" if counts[level] == 1 else "s"
        word = f"{counts[level]} {level.value}{plural}" if counts[level] else f"no {level.value}"
        parts.append((word, _STYLES[level] if counts[level] else ""))
    return Text.assemble(parts[0], ", ", parts[1], f", {counts[Level.OK]} ok.")


def _dump(found: Sequence[Finding], counts: Counter[Level], output: str) -> None:
    known = {
        "failures": counts[Level.FAILURE],
        "warnings": counts[Level.WARNING],
        "ok": counts[Level.OK],
        "findings": [{**asdict(finding), "level": finding.level.value} for finding in found],
    }
    if output == "json":
        print(json.dumps(known, indent=2))
    else:
        print(yaml.safe_dump(known, sort_keys=False), end="")
