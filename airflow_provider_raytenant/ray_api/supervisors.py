"""Which jobs' supervisors live: Ray's state API, read into submission ids.

Each job has one supervisor, an actor beside its driver that writes the job's status. What the jobs API
says of a job is what its supervisor, or the head's job manager, wrote last, and stays RUNNING for ever
when neither can write any more. The state API asks Ray's own book of actors instead.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from airflow_provider_raytenant.exceptions import RayUnavailableError

NAME_PREFIX: Final = "_ray_internal_job_actor_"
"""A supervisor's name is this and the submission id (``JOB_ACTOR_NAME_TEMPLATE``, Ray 2.60)."""

MOST_ROWS: Final = 10_000
"""The longest answer of the state API (``RAY_MAX_LIMIT_FROM_API_SERVER``), and the most actors that it
looks at (``RAY_MAX_LIMIT_FROM_DATA_SOURCE``). Only ``state`` is filtered before the second of them, so it
is a limit on living actors of every kind."""

_FILTERS: Final = (("class_name", "JobSupervisor"), ("state", "ALIVE"))

PATH: Final = "/api/v0/actors?" + urlencode(
    [
        *(
            pair
            for key, value in _FILTERS
            for pair in (("filter_keys", key), ("filter_predicates", "="), ("filter_values", value))
        ),
        ("limit", MOST_ROWS),
    ]
)


def parse_supervisors(answer: Any) -> frozenset[str]:
    """The submission ids in an answer to :data:`PATH`.

    :raises RayUnavailableError: it is no such answer, or not a whole one: a job that is missing in half
        an answer may well live.
    """
    try:
        found = answer["data"]["result"]
        rows = found["result"]
        whole = (
            not found.get("partial_failure_warning")
            and int(found["total"]) <= int(found["num_after_truncation"])
            and int(found["num_filtered"]) <= len(rows)
        )
        names = [str(row["name"]) for row in rows if row["state"] == "ALIVE"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RayUnavailableError(
            f"Ray gave no sound list of actors ({error!r}): {str(answer)[:200]!r}"
        ) from error
    if not whole:
        counts = {key: found.get(key) for key in ("total", "num_after_truncation", "num_filtered")}
        raise RayUnavailableError(f"Ray gave a part of its actors only: {len(rows)} rows of {counts}")
    return frozenset(name.removeprefix(NAME_PREFIX) for name in names if name.startswith(NAME_PREFIX))
