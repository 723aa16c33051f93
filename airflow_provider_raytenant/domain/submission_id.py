"""The submission id: computed from the try, so that the same try always finds its own job."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_LENGTH: Final = 120
"""Ray answers 500 and leaves an orphan record for ids of 300 characters or with a slash in them."""

_HASH_LENGTH: Final = 20


def submission_id(
    *, deployment: str, tenant: str, dag_id: str, task_id: str, try_number: int, ti_id: str
) -> str:
    """A readable prefix and a hash of (deployment, task instance UUID), in ``[A-Za-z0-9_-]``.

    The UUID changes with every try and is stable over a deferral; a run that was deleted and
    created anew gets new ones. So the id names one try of one task and nothing else, for ever.

    >>> submission_id(deployment="prod", tenant="acme", dag_id="etl", task_id="load",
    ...               try_number=1, ti_id="0197").startswith("acme-etl-load-try1-")
    True
    """
    digest = hashlib.sha256(f"{deployment}\0{ti_id}".encode()).hexdigest()[:_HASH_LENGTH]
    attempt = f"try{try_number}"
    room = MAX_LENGTH - len(digest) - len(attempt) - 2
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", f"{tenant}-{dag_id}-{task_id}")[:room].rstrip("-_")
    return f"{readable}-{attempt}-{digest}"
