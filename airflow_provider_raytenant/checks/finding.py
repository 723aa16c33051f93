"""One line of the doctor: what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is. Only a failure ends the command with exit code 1, unless ``--strict``."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    :param check: its name, at most 14 characters.
    :param found: what there is, without a full stop.
    :param advice: one sentence; empty only where the level is ok.
    :param cluster: whose line it is; without it, Airflow's own.
    :param tenant: whose line it is, within the cluster.
    """

    check: str
    level: Level
    found: str
    advice: str = ""
    cluster: str | None = None
    tenant: str | None = None


def ok(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """It works, but something may come of it."""
    return Finding(check, Level.WARNING, found, advice)


def failure(check: str, found: str, advice: str) -> Finding:
    """Tasks fail, wait for ever, or are open to others."""
    return Finding(check, Level.FAILURE, found, advice)
