"""The answer of ``GET /api/jobs/``, read record by record.

A busy cluster's listing has megabytes: records never expire, and each has about 1.6 KB. ``json.loads``
of so much holds the interpreter for its whole length, in a thread as well; read one by one, in a thread,
the records leave the event loop its turns between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.exceptions import RayUnavailableError

_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Listing:
    """Every job that Ray knows.

    :param jobs: those that came through the jobs API, by submission id, finished ones included.
    :param unsound: what is wrong with the records of others of them, by submission id.
    :param records: how many records the answer had, drivers that came another way included.
    """

    jobs: dict[str, JobInfo] = field(default_factory=dict)
    unsound: dict[str, RayUnavailableError] = field(default_factory=dict)
    records: int = 0


def parse_listing(text: str) -> Listing:
    """The listing in an answer's text. One broken record does not hide the others.

    :raises RayUnavailableError: it is no list of records.
    :raises ValueError: it is no JSON.
    """
    jobs: dict[str, JobInfo] = {}
    unsound: dict[str, RayUnavailableError] = {}
    records = 0
    for record in elements(text):
        records += 1
        if not isinstance(record, dict):
            raise RayUnavailableError(f"Ray gave no JSON object, but {str(record)[:200]!r}")
        if record.get("type") != "SUBMISSION":
            continue
        try:
            job = job_of(record)
        except RayUnavailableError as error:
            unsound[str(record.get("submission_id"))] = error
        else:
            jobs[job.submission_id] = job
    return Listing(jobs, unsound, records)


def job_of(record: Any) -> JobInfo:
    """One record in our words.

    :raises RayUnavailableError: it is no sound record.
    """
    try:
        return JobInfo.from_ray(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RayUnavailableError(
            f"Ray gave no sound job record ({error!r}): {str(record)[:200]!r}"
        ) from error


def elements(text: str, start: int | None = None) -> Iterator[Any]:
    """The elements of a JSON array, one by one.

    :param start: where in the text it begins; ``None``: the array is the whole text.
    :raises RayUnavailableError: the text is JSON, but no array.
    :raises ValueError: it is no JSON.
    """
    decode = json.JSONDecoder().raw_decode
    position = _after_space(text, start or 0)
    if text[position : position + 1] != "[":
        raise RayUnavailableError(f"Ray gave no list of jobs, but {str(json.loads(text))[:200]!r}")
    position = _after_space(text, position + 1)
    more = text[position : position + 1] != "]"
    while more:
        element, position = decode(text, position)
        yield element
        position = _after_space(text, position)
        more = text[position : position + 1] == ","
        if more:
            position = _after_space(text, position + 1)
    ends = start is not None or _after_space(text, position + 1) == len(text)
    if text[position : position + 1] != "]" or not ends:
        raise ValueError("not one JSON array")


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
