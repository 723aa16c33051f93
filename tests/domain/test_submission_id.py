from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.submission_id import MAX_LENGTH, submission_id
from tests.domain.helpers import seeded

TRY: dict[str, Any] = {
    "deployment": "prod",
    "tenant": "acme",
    "dag_id": "etl",
    "task_id": "load",
    "try_number": 1,
    "ti_id": "01979c2a-0000-7000-8000-000000000001",
}
ABSURD = [
    "x" * 300,
    "a/b",
    "..",
    "ä",
    "日本語" * 100,
    "a b\n",
    "",
    "-" * 200,
    "%2e",
    "group.task[0]",
    "\0",
    "'; rm -rf /",
]


def test_an_id_is_readable_and_ends_in_a_hash() -> None:
    assert re.fullmatch(r"acme-etl-load-try1-[0-9a-f]{20}", submission_id(**TRY))


def test_an_id_is_the_same_in_every_process_and_version() -> None:
    # A change here would orphan every job that runs while the provider is upgraded.
    assert submission_id(**TRY) == "acme-etl-load-try1-11c6c994dcac3ce8f434"


@pytest.mark.parametrize("name", ABSURD)
@pytest.mark.parametrize("where", ["tenant", "dag_id", "task_id"])
def test_absurd_names_give_an_id_that_ray_takes(where: str, name: str) -> None:
    made = submission_id(**{**TRY, where: name})
    assert re.fullmatch(r"[A-Za-z0-9_-]+", made)
    assert len(made) <= MAX_LENGTH
    assert made.endswith(submission_id(**TRY)[-20:])


@seeded
@given(st.text(), st.text(), st.text(), st.integers(1, 10**9))
def test_any_name_gives_an_id_that_ray_takes(tenant: str, dag: str, task: str, number: int) -> None:
    values = {**TRY, "tenant": tenant, "dag_id": dag, "task_id": task, "try_number": number}
    made = submission_id(**values)
    assert re.fullmatch(rf"[A-Za-z0-9_-]*-try{number}-[0-9a-f]{{20}}", made)
    assert len(made) <= MAX_LENGTH
    assert made == submission_id(**values)


def test_the_longest_id_uses_all_the_room() -> None:
    assert len(submission_id(**{**TRY, "dag_id": "x" * 300})) == MAX_LENGTH == 120


@pytest.mark.parametrize("where", ["deployment", "ti_id"])
def test_another_deployment_or_another_try_has_another_hash(where: str) -> None:
    assert submission_id(**{**TRY, where: TRY[where] + "2"})[-20:] != submission_id(**TRY)[-20:]


def test_the_border_between_deployment_and_try_counts() -> None:
    one = submission_id(**{**TRY, "deployment": "prod", "ti_id": "1x"})
    assert one != submission_id(**{**TRY, "deployment": "prod1", "ti_id": "x"})
