"""May a try go on with the job of the try before? Only if nobody cleared the task in between.

It matters where the worker waits for the job (``deferrable=False``): its death ends the try, not the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

STORE_KEY: Final = "raytenant_job"
"""The key in Airflow's task state store, which outlives tries and clears."""


@dataclass(frozen=True)
class Marks:
    """What tells an automatic retry from a clear: a retry moves ``try_number`` by one and nothing else.

    A clear moves ``max_tries`` of the task, except from RUNNING to RESTARTING, and ``clear_number`` of the
    run, which also rises when a sibling task is cleared (read in Airflow 3.3.2). In doubt it is a clear.
    """

    try_number: int
    max_tries: int
    clear_number: int


def held(submission_id: str, marks: Marks) -> dict[str, Any]:
    """What a try leaves in the store before it submits."""
    return {"submission_id": submission_id, **asdict(marks)}


def adoptable(stored: Any, marks: Marks) -> str | None:
    """The submission id that a try with these marks may go on with, if any.

    :param stored: what the store has; anything else than what :func:`held` wrote is nothing.
    """
    if not isinstance(stored, Mapping) or not isinstance(stored.get("submission_id"), str):
        return None
    before = Marks(marks.try_number - 1, marks.max_tries, marks.clear_number)
    same = stored == held(stored["submission_id"], before)
    return stored["submission_id"] if same else None
