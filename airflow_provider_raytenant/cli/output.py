"""Printing for people (rich tables, 80 columns) and for programs (JSON, YAML)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_provider_raytenant.exceptions import RayTenantError

Command = Callable[[Any], None]


def console() -> Console:
    """Standard output; 80 columns wide where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 80, highlight=False, soft_wrap=False)


@contextmanager
def nothing_else_on_stdout() -> Iterator[None]:
    """What libraries log meanwhile goes to standard error, so that the output is the command's alone.

    Airflow 3.3 logs to standard output, by the file descriptor that it found when it was set up.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def complain(text: str) -> None:
    """A line for people on standard error."""
    print(text, file=sys.stderr)


def print_rows(rows: Sequence[Mapping[str, Any]], output: str, *, numbers: Sequence[str] = ()) -> None:
    """Rows of equal keys as a table, JSON or YAML.

    :param output: ``table``, ``json`` or ``yaml``.
    :param numbers: keys of columns that stand to the right.
    """
    if output == "json":
        print(json.dumps([dict(row) for row in rows], indent=2))
    elif output == "yaml":
        print(yaml.safe_dump([dict(row) for row in rows], sort_keys=False), end="")
    elif rows:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for key in rows[0]:
            right = key in numbers
            table.add_column(key, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in rows:
            table.add_row(*(Text("-" if value is None else str(value)) for value in row.values()))
        console().print(table)


def one_clear_error(command: Command) -> Command:
    """Ends a command with our error's text on standard error and exit code 1, without a traceback."""

    @wraps(command)
    def run(args: Any) -> None:
        try:
            command(args)
        except RayTenantError as error:
            complain(str(error))
            raise SystemExit(1) from None

    return run
