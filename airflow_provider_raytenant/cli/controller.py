"""``airflow raytenant controller``: pools and sweeps, again and again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any, Final

from airflow_provider_raytenant import tenant_file
from airflow_provider_raytenant.cli.jobs import duration
from airflow_provider_raytenant.cli.output import one_clear_error
from airflow_provider_raytenant.control.controller import Controller, Settings
from airflow_provider_raytenant.control.health import send_metrics
from airflow_provider_raytenant.control.threads import waiting
from airflow_provider_raytenant.exceptions import RequestError

log = logging.getLogger(__name__)

SHORTEST_INTERVAL: Final = 0.5
LONGEST_INTERVAL: Final = 3600.0


@one_clear_error
def controller(args: Any) -> None:
    """Run until SIGTERM or SIGINT (exit code 0); with ``--once`` one round, exit code 1 if it went wrong."""
    settings = Settings(_interval(args.interval), duration("--older-than", args.older_than))
    path = args.file or tenant_file.config_file()
    _log_to_stdout()
    send_metrics()
    made = Controller(path, settings, lambda text: log.info("%s", text))
    if args.once:
        if not asyncio.run(made.once()):
            raise SystemExit(1)
        return
    asyncio.run(_until_signal(made, f"controller: {path}, a round every {settings.interval:g} s"))
    log.info("controller: stopped")
    if waiting():
        # At exit Airflow closes every session, and complains of one that a thread still waits in.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


async def _until_signal(made: Controller, greeting: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Whoever has read it may send a signal.
    log.info("%s", greeting)
    await made.run(stop)


def _interval(text: str) -> float:
    """Seconds between rounds.

    :raises RequestError: saying what was found and what is allowed.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL:
        raise RequestError(
            f"--interval: found {text!r}; allowed: seconds, {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g}"
        )
    return seconds


class _OneLine(logging.Formatter):
    """A line for each message, whatever is in it, with the time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        lines = record.getMessage().splitlines()
        # What Ray or a job said may hold codes that a terminal obeys.
        text = "".join(c if c.isprintable() else " " for c in "; ".join(lines))
        return f"{time.removesuffix('+00:00')}Z {text}"


def _log_to_stdout() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_OneLine())
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    # Airflow's own handlers would say it a second time.
    log.propagate = False
