"""What Airflow's configuration says of the copying of logs."""

from __future__ import annotations

from typing import Final

from airflow.sdk.configuration import conf

from airflow_provider_raytenant.exceptions import RequestError
from airflow_provider_raytenant.ray_api.log_follower import MAX_BYTES
from airflow_provider_raytenant.ray_api.log_reads import LIVE_LOGS

_MOST_LIVE_LOGS: Final = 100_000


def max_bytes() -> int:
    """``[raytenant] log_max_bytes``: bytes of a job's output that are copied into its task's log.

    :raises RequestError: it is no such number.
    """
    return _number("log_max_bytes", MAX_BYTES, 1, 1024**4)


def live_logs() -> int:
    """``[raytenant] live_logs``: jobs of a cluster whose output a triggerer copies while they run.

    :raises RequestError: it is no such number.
    """
    return _number("live_logs", LIVE_LOGS, 1, _MOST_LIVE_LOGS)


def _number(name: str, default: int, least: int, most: int) -> int:
    text = str(conf.get("raytenant", name, fallback=str(default))).strip()
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    if not least <= value <= most:
        raise RequestError(f"[raytenant] {name}: found {text!r}; allowed: {least} to {most}")
    return value
