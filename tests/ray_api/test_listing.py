"""The listing is read as `json.loads` would, piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import RayUnavailableError
from airflow_provider_raytenant.ray_api.listing import parse_listing

spaces = st.text(" \t\r\n", max_size=3)
names = st.text(min_size=1, max_size=20)
statuses = st.sampled_from(list(JobStatus))


def record(name: str, status: str = "RUNNING", **more: Any) -> dict[str, Any]:
    return {"type": "SUBMISSION", "submission_id": name, "status": status, "entrypoint": 'x "],[', **more}


@given(st.dictionaries(names, statuses), st.integers(0, 3), st.lists(spaces, min_size=5, max_size=5))
def test_what_is_listed(jobs: dict[str, JobStatus], drivers: int, space: list[str]) -> None:
    rows = [record(name, status) for name, status in jobs.items()]
    rows += [{"type": "DRIVER", "submission_id": None, "status": "RUNNING"}] * drivers
    separator = f"{space[0]},{space[1]}"
    text = f"{space[2]}[{space[3]}{separator.join(map(json.dumps, rows))}{space[3]}]{space[4]}"
    assert json.loads(text) == rows

    listing = parse_listing(text)

    assert {name: job.status for name, job in listing.jobs.items()} == jobs
    assert listing.records == len(rows)
    assert not listing.unsound


@given(st.text('[]{}," \\\n1a', max_size=12))
def test_what_is_no_json_list_is_refused(text: str) -> None:
    try:
        sound = all(isinstance(row, dict) for row in json.loads(text)) and text.lstrip()[0] == "["
    except (ValueError, TypeError):
        sound = False
    if sound:
        parse_listing(text)
    else:
        with pytest.raises((ValueError, RayUnavailableError)):
            parse_listing(text)


def test_a_half_of_it_is_refused() -> None:
    text = json.dumps([record("one"), record("two")])
    for end in range(len(text)):
        with pytest.raises((ValueError, RayUnavailableError)):
            parse_listing(text[:end])


def test_a_record_that_is_not_sound_hides_no_other() -> None:
    odd = record("odd", "DANCING")
    listing = parse_listing(json.dumps([record("one"), odd, {"type": "SUBMISSION"}, record("two")]))

    assert set(listing.jobs) == {"one", "two"}
    assert "DANCING" in str(listing.unsound["odd"])
    assert listing.records == 4
