"""What Airflow's table of jobs tells of a process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Heartbeat:
    """``age``: seconds since it was last heard of; ``running``: whether it has not said that it ended."""

    hostname: str
    running: bool
    age: float
