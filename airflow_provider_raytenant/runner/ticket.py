"""The try's ticket: nothing starts without it.

A ticket is a folder `raytenant_ticket` in one of the job's `py_modules`, so that it comes with the job's
own code and needs neither storage nor an address. Whoever stops a job that waits replaces it by one that
says so, since Ray starts a waiting job all the same and stops it a moment later (measured on 2.60).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable

FOLDER = "raytenant_ticket"
FILE = "ticket.json"

# The address of what the job was granted, where it was granted something (see `claim`).
CLAIM_VARIABLE = "RAYTENANT_CLAIM"
SUBMISSION_ID_VARIABLE = "RAYTENANT_SUBMISSION_ID"


class NoTicket(Exception):
    """The entrypoint must not run; the message says why."""


class NoClaim(Exception):
    """What the job was granted cannot be had; the message says why."""


def claim(submission_id: str, places: Iterable[str] | None = None) -> None:
    """See that the ticket of this job is there and good, and remove it: it serves once.

    places: folders in which `raytenant_ticket` may lie, by default those of `sys.path`.

    Raises NoTicket.
    """
    for place in sys.path if places is None else places:
        folder = os.path.join(place, FOLDER)
        ticket = _read(os.path.join(folder, FILE))
        if ticket is None or ticket.get("submission_id") != submission_id:
            continue
        if ticket.get("valid") is not True:
            raise NoTicket("this job was stopped before it started; its entrypoint does not run")
        _remove(folder)
        return
    raise NoTicket("this job has no ticket; its entrypoint does not run")


def _read(path: str) -> dict[str, object] | None:
    try:
        with open(path, encoding="utf-8") as file:
            ticket = json.load(file)
    except (OSError, ValueError):
        return None
    return ticket if isinstance(ticket, dict) else None


def _remove(folder: str) -> None:
    """Nodes live long, and Ray keeps what it fetched: a ticket of every job would add up."""
    try:
        os.unlink(os.path.join(folder, FILE))
        os.rmdir(folder)
    except OSError:
        return
