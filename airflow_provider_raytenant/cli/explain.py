"""``airflow raytenant explain``: why a task waits, in one sentence, with what shows it and what to do."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import yaml
from rich.text import Text

from airflow_provider_raytenant.cli.output import console, nothing_else_on_stdout, one_clear_error
from airflow_provider_raytenant.cli.tenants import read
from airflow_provider_raytenant.control.explaining import gather_facts
from airflow_provider_raytenant.domain.explain import explain as explain_facts
from airflow_provider_raytenant.domain.explain_words import span
from airflow_provider_raytenant.domain.explanation import Explanation
from airflow_provider_raytenant.domain.waiting_facts import Facts, Holder
from airflow_provider_raytenant.domain.wording import count

_LABEL: Final = 12
_WIDEST: Final = 120
_FIRM: Final = "\N{NO-BREAK SPACE}"
_COLUMNS: Final = ("job", "slots", "since", "ray", "task")


@one_clear_error
def explain(args: Any) -> None:
    """Print the answer; exit code 1 only where there is no such task, or nobody to ask about it."""
    with nothing_else_on_stdout():
        _, file = read(args)
        facts = gather_facts(file, args.dag_id, args.run_id, args.task_id, args.map_index)
        found = explain_facts(facts)
    if args.output == "json":
        print(json.dumps(_data(found, facts), indent=2))
    elif args.output == "yaml":
        print(yaml.safe_dump(_data(found, facts), sort_keys=False), end="")
    else:
        out = console()
        for line in _lines(found, facts, min(out.width, _WIDEST)):
            out.print(line, soft_wrap=True)


def _lines(found: Explanation, facts: Facts, width: int) -> Iterator[Text]:
    for text in _wrapped(found.answer, width):
        yield Text(text, "bold")
    yield Text("")
    for label, text in found.evidence:
        for number, part in enumerate(_wrapped(text, width - _LABEL)):
            yield Text(("" if number else label).ljust(_LABEL), "dim").append(part, "not dim")
    yield from _holder_lines(found, facts, width)
    for text in found.advice:
        for number, part in enumerate(_wrapped(text, width - 3)):
            yield Text(("   " if number else "-> ") + part)


def _holder_lines(found: Explanation, facts: Facts, width: int) -> Iterator[Text]:
    """A small table; a job's id is what `jobs show` and `jobs stop` take."""
    if not found.holders:
        return
    rows = [_cells(holder, facts) for holder in found.holders]
    widths = [max(len(name), *(len(row[n]) for row in rows)) for n, name in enumerate(_COLUMNS)]
    for number, row in enumerate([_COLUMNS, *rows]):
        cells = [
            cell.rjust(size) if name == "slots" else cell.ljust(size)
            for name, cell, size in zip(_COLUMNS[:-1], row[:-1], widths[:-1], strict=True)
        ]
        line = "  ".join([*cells, row[-1]])
        label = "held by" if number == 0 else ""
        style = "dim" if number == 0 else ""
        yield Text(label.ljust(_LABEL), "dim").append(line[: width - _LABEL], style or "not dim")
    shown = {(holder.ti_id, holder.task, holder.run_id) for holder in found.holders}
    pool = facts.task.pool
    rest = [h for h in facts.holders if h.pool == pool and (h.ti_id, h.task, h.run_id) not in shown]
    if rest:
        more = f"and {count(len(rest), 'more task')} with {count(sum(h.slots for h in rest), 'slot')}"
        yield Text(" " * _LABEL + more, "dim")


def _cells(holder: Holder, facts: Facts) -> tuple[str, ...]:
    task = holder.task if holder.pool == facts.task.pool else f"{holder.task} (of {holder.pool})"
    since = span(holder.since, facts.now)
    return holder.job or "-", str(holder.slots), since, holder.ray or holder.state, task


def _wrapped(text: str, width: int) -> list[str]:
    """Lines; a command in backquotes stays in one, so that it can be copied."""
    parts = text.split("`")
    parts[1::2] = [part.replace(" ", _FIRM) for part in parts[1::2]]
    lines = textwrap.wrap("`".join(parts), width, break_on_hyphens=False, break_long_words=False)
    return [line.replace(_FIRM, " ") for line in lines] or [""]


def _data(found: Explanation, facts: Facts) -> dict[str, Any]:
    task, line = facts.task, facts.line
    return {
        "verdict": found.verdict.value,
        "answer": found.answer,
        "task": {
            "dag_id": task.dag_id,
            "run_id": task.run_id,
            "task_id": task.task_id,
            "map_index": task.map_index,
            "state": task.state,
            "try_number": task.try_number,
            "pool": task.pool,
            "slots": task.slots,
            "tenant": facts.tenant,
        },
        "place": None if line is None else line.place,
        "of": None if line is None else line.of,
        "evidence": [{"about": label, "text": text} for label, text in found.evidence],
        "held_by": [
            {
                "job": holder.job,
                "slots": holder.slots,
                "since": None if holder.since is None else holder.since.isoformat(timespec="seconds"),
                "ray": holder.ray,
                "airflow": holder.state,
                "tenant": holder.tenant,
                "task": holder.task,
                "run_id": holder.run_id,
                "pool": holder.pool,
            }
            for holder in found.holders
        ],
        "advice": list(found.advice),
    }
