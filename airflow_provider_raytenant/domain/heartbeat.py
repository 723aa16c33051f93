"""What Airflow's table of jobs tells of a process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONTROLLER_SILENT: Final = 60.0
"""Seconds without a heartbeat, which comes every five, after which a controller counts as dead."""

ROUNDS_AGO: Final = 900.0
"""Seconds after which a round of `controller --once` is no sign any more that one comes now and then."""


@dataclass(frozen=True)
class Heartbeat:
    """``age``: seconds since it was last heard of; ``running``: whether it has not said that it ended."""

    hostname: str
    running: bool
    age: float
