from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.patience import LEAST, MOST, patience_of

DAY = 24 * 3600.0
held = st.lists(st.tuples(st.integers(1, 30), st.floats(0, 10 * DAY)), max_size=30)


def test_where_nothing_runs_it_is_the_least() -> None:
    assert patience_of([]) == LEAST


@pytest.mark.parametrize("run_time", [100.0, 2000.0, 3600.0])
def test_it_is_about_as_long_as_jobs_run(run_time: float) -> None:
    """Jobs of equal length that started one after the other are of all ages up to it."""
    ages = [(2, run_time * part / 40) for part in range(1, 41)]
    assert patience_of(ages) == pytest.approx(run_time)


def test_slots_count_and_not_jobs() -> None:
    assert patience_of([(1, 100.0)] * 9 + [(40, 500.0)]) == 1000.0


def test_jobs_that_stay_for_days_tell_nothing_of_the_others() -> None:
    short = [(1, 25.0), (1, 50.0), (1, 75.0), (1, 100.0)]
    assert patience_of([*short, (4, 9 * DAY)]) == 200.0


def test_where_most_of_them_stay_it_still_ends() -> None:
    assert patience_of([(1, 10.0), (99, 9 * DAY)]) == MOST


@given(held)
def test_it_has_bounds_and_knows_no_order(ages: list[tuple[int, float]]) -> None:
    found = patience_of(ages)
    assert LEAST <= found <= MOST
    assert patience_of(reversed(ages)) == found


@given(held, st.floats(1, 100))
def test_jobs_of_many_times_the_length_are_waited_for_as_many_times(
    ages: list[tuple[int, float]], times: float
) -> None:
    found = patience_of(ages)
    stretched = patience_of([(slots, times * seconds) for slots, seconds in ages])
    if found in (LEAST, MOST) or stretched == MOST:
        assert stretched >= found
    else:
        assert stretched == pytest.approx(times * found)
