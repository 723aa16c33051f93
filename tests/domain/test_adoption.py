from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.adoption import Marks, adoptable, held

numbers = st.integers(0, 5)
marks = st.builds(Marks, numbers, numbers, numbers)


def stored(submission_id: str, of: Marks) -> Any:
    """As it comes back from the store: through JSON."""
    return json.loads(json.dumps(held(submission_id, of)))


def test_the_next_try_goes_on_with_the_job() -> None:
    assert adoptable(stored("j", Marks(1, 3, 0)), Marks(2, 3, 0)) == "j"


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (Marks(1, 3, 0), "the same try: a run that was deleted and made anew"),
        (Marks(3, 3, 0), "a try in between"),
        (Marks(2, 4, 0), "cleared: more tries are allowed"),
        (Marks(2, 3, 1), "the run was cleared, this task or another"),
    ],
)
def test_in_doubt_it_is_left(now: Marks, why: str) -> None:
    assert adoptable(stored("j", Marks(1, 3, 0)), now) is None, why


@given(marks, marks)
def test_only_an_automatic_retry_adopts(before: Marks, now: Marks) -> None:
    retry = now == Marks(before.try_number + 1, before.max_tries, before.clear_number)
    assert adoptable(stored("j", before), now) == ("j" if retry else None)


@pytest.mark.parametrize("found", [None, "j", 3, [], {}, {"submission_id": 3}, {"submission_id": "j"}])
def test_what_is_not_ours_is_nothing(found: Any) -> None:
    assert adoptable(found, Marks(2, 3, 0)) is None
