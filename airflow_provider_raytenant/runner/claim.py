"""Claiming what the job may use: credentials and secrets, once, by an address that then opens nothing.

The address stands where everybody on the cluster can read it. So the ticket behind it is removed before the
entrypoint starts; who comes too late gets nothing, and a job whose ticket is gone does not run.
"""

from __future__ import annotations

import json
import time

from .http import ask
from .ticket import NoClaim

_TIMEOUT_SECONDS = 10.0
_ATTEMPTS = 4
_LARGEST_BYTES = 4 * 1024 * 1024


def claim_grant(url: str) -> dict[str, object]:
    """Read the ticket, then remove it.

    Raises NoClaim: somebody has claimed it before, its time is over, or the storage gives no answer.
    """
    status, body = _ask("GET", url)
    if status != 200:
        raise NoClaim(
            f"the storage answers {status} for this job's ticket: somebody has claimed it before, or its "
            "time is over; the entrypoint does not run"
        )
    grant = read_grant(body)
    if grant is None or not isinstance(grant.get("remove_url"), str):
        raise NoClaim("this job's ticket cannot be read; the entrypoint does not run")
    status, _ = _ask("DELETE", str(grant["remove_url"]))
    if status not in (200, 204):
        raise NoClaim(
            f"this job's ticket cannot be removed (the storage answers {status}); the entrypoint does not run"
        )
    return grant


def renewed_grant(url: str) -> dict[str, object] | None:
    """What lies at a renewal's address; `None` where there is nothing yet, or no answer."""
    try:
        status, body = _ask("GET", url, attempts=1)
    except NoClaim:
        return None
    return read_grant(body) if status == 200 else None


def read_grant(body: bytes) -> dict[str, object] | None:
    """A grant as a ticket or a renewal holds it; `None` for anything else."""
    try:
        grant = json.loads(body)
    except ValueError:
        return None
    if not isinstance(grant, dict) or not isinstance(grant.get("credentials"), dict):
        return None
    return grant


def _ask(method: str, url: str, attempts: int = _ATTEMPTS) -> tuple[int, bytes]:
    problem = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(0.5 * 2**attempt)
        try:
            status, body = ask(method, url, _TIMEOUT_SECONDS, _LARGEST_BYTES)
        except OSError as error:
            # Its text may hold the address.
            problem = error.strerror or type(error).__name__
            continue
        except ValueError:
            raise NoClaim("the address of this job's ticket is none") from None
        if status < 500 and status != 429:
            return status, body
        problem = f"it answers {status}"
    raise NoClaim(
        f"the storage of this job's ticket gives no answer ({problem}); the entrypoint does not run"
    )
