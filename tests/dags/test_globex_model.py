from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from delay_model import FOLDS, PENALTIES, Trained, errors, fit, split_days, train
from encoding import CATEGORIES, Columns, Encoding, select

from stack.flights import flights

COLUMNS = ["day", "hour", "carrier", "origin", "dest", "distance", "dep_delay", "arr_delay"]


def here(function: Any, items: Sequence[int], *shared: Any) -> list[Any]:
    """What the job lets Ray do."""
    return [function(item, *shared) for item in items]


@pytest.fixture(scope="module")
def sample() -> Columns:
    """A fifth of January's flights, of all days."""
    table = flights().query("month == 1")[COLUMNS].dropna().sample(frac=0.2, random_state=2013)
    return {name: table[name].to_numpy() for name in COLUMNS}


@pytest.fixture(scope="module")
def trained(sample: Columns) -> Trained:
    return train(sample, here)


def test_it_beats_its_baseline_on_days_it_never_saw(trained: Trained) -> None:
    assert trained.model["mae"] < trained.baseline["mae"]
    assert trained.model["r2"] > trained.baseline["r2"] > 0.5
    assert trained.held_out_rows > 500


def test_cross_validation_scores_every_penalty_and_takes_the_best(trained: Trained) -> None:
    assert set(trained.cross_validation) == set(PENALTIES)
    assert trained.cross_validation[trained.penalty] == min(trained.cross_validation.values())


def test_training_is_repeatable(sample: Columns, trained: Trained) -> None:
    assert train(sample, here) == trained


def test_days_are_held_out_whole_and_each_is_in_one_fold(sample: Columns) -> None:
    held_out, folds = split_days(sample["day"], seed=1)
    assert len(np.unique(sample["day"][held_out])) == 6  # a fifth of 31
    assert not set(sample["day"][held_out]) & set(sample["day"][~held_out])
    assert set(folds[~held_out]) == set(range(FOLDS))
    for day in np.unique(sample["day"]):
        assert len(np.unique(folds[sample["day"] == day])) == 1


def test_a_matrix_has_a_column_per_name_and_none_for_an_unknown_level(sample: Columns) -> None:
    encoding = Encoding.of(sample)
    assert encoding.matrix(sample).shape == (len(sample["day"]), len(encoding.names))
    first = select(sample, np.arange(len(sample["day"])) == 0)
    measures = len(encoding.names) - sum(len(encoding.levels[name]) for name in CATEGORIES)
    assert encoding.matrix(first)[0, measures:].sum() == len(CATEGORIES)
    strange = {**first, "dest": np.array(["XXX"])}
    assert encoding.matrix(strange)[0, measures:].sum() == len(CATEGORIES) - 1


def test_fit_finds_a_line_in_spite_of_an_outlier() -> None:
    slope = np.linspace(-1, 1, 200)
    lost = 3 + 4 * slope
    lost[10] = 10_000
    assert fit(np.column_stack([np.ones(200), slope]), lost, penalty=1e-6) == pytest.approx([3, 4], abs=0.1)


def test_a_large_penalty_leaves_the_intercept_alone() -> None:
    slope = np.linspace(-1, 1, 200)
    found = fit(np.column_stack([np.ones(200), slope]), 3 + 4 * slope, penalty=1e9)
    assert found == pytest.approx([3, 0], abs=0.01)


def test_errors_of_a_perfect_and_of_a_constant_prediction() -> None:
    truth = np.array([0.0, 10.0, 20.0])
    assert errors(truth, truth) == {"mae": 0.0, "r2": 1.0}
    assert errors(truth, np.full(3, 10.0)) == {"mae": pytest.approx(20 / 3), "r2": 0.0}
