"""How late will a flight land, given how late it left? A ridge regression under Huber's loss, in numpy.

What is modelled is the time lost under way, arrival delay less departure delay, in minutes. A penalty that
pulls every coefficient to zero thus pulls the model to its baseline: "as late as it left, give or take the
usual". Days are held out whole: flights of one day share their weather, and a split by flight would leak it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import numpy as np
from encoding import Columns, Encoding, Matrix, Vector, select
from numpy.typing import NDArray

PENALTIES = (1.0, 10.0, 100.0)
FOLDS = 5
HELD_OUT = 0.2  # share of the days
KINK = 5.0  # minutes; errors beyond it count by their size, not by their square
ROUNDS = 10  # of reweighting; twenty more move the errors by less than 0.01 minutes


class Each(Protocol):
    """Calls `function(item, *shared)` for each item, wherever that may run."""

    def __call__(self, function: Any, items: Sequence[int], *shared: Any) -> list[Any]: ...


class Errors(TypedDict):
    """Mean absolute error in minutes, and the share of the variance explained."""

    mae: float
    r2: float


@dataclass(frozen=True)
class Trained:
    coefficients: dict[str, float]  # minutes per unit of the named column
    penalty: float
    cross_validation: dict[float, float]  # mean absolute error in minutes, by penalty
    model: Errors
    baseline: Errors
    held_out_rows: int


def train(flights: Columns, each: Each, seed: int = 2013) -> Trained:
    """Chooses the penalty by cross-validation, fits, and judges on days that neither step has seen."""
    held_out, folds = split_days(flights["day"], seed)
    known, unseen = select(flights, ~held_out), select(flights, held_out)
    encoding = Encoding.of(known)
    x, lost = encoding.matrix(known), time_lost(known)

    by_fold = each(fold_errors, range(FOLDS), x, lost, folds[~held_out])
    cross_validation = dict(zip(PENALTIES, np.mean(by_fold, axis=0).tolist(), strict=True))
    penalty = min(cross_validation, key=lambda candidate: cross_validation[candidate])

    weights = fit(x, lost, penalty)
    truth = time_lost(unseen)
    # The median is the best that one constant can do for the mean absolute error.
    usual = np.full_like(truth, np.median(lost))
    return Trained(
        coefficients=dict(zip(encoding.names, weights.tolist(), strict=True)),
        penalty=penalty,
        cross_validation=cross_validation,
        model=errors(unseen["arr_delay"], unseen["dep_delay"] + encoding.matrix(unseen) @ weights),
        baseline=errors(unseen["arr_delay"], unseen["dep_delay"] + usual),
        held_out_rows=len(truth),
    )


def split_days(day: NDArray[Any], seed: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """For each flight: is it held out, and which fold it is in (-1 for the held out)."""
    days = np.random.default_rng(seed).permutation(np.unique(day))
    count = max(1, round(HELD_OUT * len(days)))
    fold_of = {int(each_day): place % FOLDS for place, each_day in enumerate(days[count:])}
    folds = np.array([fold_of.get(int(each_day), -1) for each_day in day], dtype=np.int64)
    return folds < 0, folds


def fold_errors(fold: int, x: Matrix, lost: Vector, folds: NDArray[np.int64]) -> list[float]:
    """The mean absolute error in minutes on one fold, for each of PENALTIES. A Ray task."""
    inside = folds == fold
    return [
        float(np.abs(lost[inside] - x[inside] @ fit(x[~inside], lost[~inside], penalty)).mean())
        for penalty in PENALTIES
    ]


def fit(x: Matrix, lost: Vector, penalty: float) -> Vector:
    """Coefficients by iteratively reweighted least squares; the first column, the intercept, is free.

    Squares alone would let a few flights of ten hours' delay decide for all the others.
    """
    ridge = penalty * np.eye(x.shape[1])
    ridge[0, 0] = 0
    weights: Vector = np.zeros(x.shape[1])
    importance: Vector = np.ones(len(lost))
    for _ in range(ROUNDS):
        weighted = x.T * importance
        weights = np.linalg.solve(weighted @ x + ridge, weighted @ lost)
        importance = KINK / np.maximum(np.abs(lost - x @ weights), KINK)
    return weights


def time_lost(flights: Columns) -> Vector:
    """Minutes lost (or, below zero, made up) between departure and arrival."""
    lost: Vector = (flights["arr_delay"] - flights["dep_delay"]).astype(np.float64)
    return lost


def errors(truth: Vector, predicted: Vector) -> Errors:
    spread = np.square(truth - truth.mean()).sum()
    return {
        "mae": float(np.abs(truth - predicted).mean()),
        "r2": float(1 - np.square(truth - predicted).sum() / spread),
    }
