"""The lanes: tenants, each with a connection of its own through the fault proxy, and a DAG to run there.

Read by the DAG file and by the tests.
"""

from __future__ import annotations

PLAIN = "plain"
"""The lane that nothing is done to."""

OUTAGES = (
    "submit-refused",
    "submit-lost",
    "submit-late",
    "submit-hung",
    "submit-cut",
    "submit-html",
    "submit-twice",
    "submit-exists",
    "polls-refused",
    "polls-late",
    "polls-hung",
    "polls-cut",
    "polls-html",
    "logs-cut",
)
HELD = ("in-submit", "in-answer", "late-submit", "in-execute", "after-execute")
"""Lanes on which a request is kept while a process is killed."""

LANES = (PLAIN, *OUTAGES, *HELD)

CAPACITY = 40
"""Logical CPUs of the node that takes most jobs."""

COUNT_DIR = "FAULT_COUNT_DIR"
"""The variable, in Airflow's environment, of the folder in which jobs count their starts."""

JOB = "FAULT_JOB"
"""The variable of the program that counts, waits to be released and ends."""
