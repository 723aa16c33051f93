"""Flights as a matrix of numbers. Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]
Columns = Mapping[str, NDArray[Any]]
"""Flights by column, all of one length: `day`, `hour`, `carrier`, `origin`, `dest`, `distance` in miles,
`dep_delay` and `arr_delay` in minutes."""

CATEGORIES = ("carrier", "origin", "dest", "hour")


def select(flights: Columns, where: NDArray[np.bool_]) -> Columns:
    return {name: values[where] for name, values in flights.items()}


@dataclass(frozen=True)
class Encoding:
    """A column of the matrix for each level of each category, beside an intercept and the measures.

    A level that was not seen when the encoding was made has no column: such a flight is all zeros there.
    """

    levels: dict[str, list[Any]]

    @classmethod
    def of(cls, flights: Columns) -> Encoding:
        return cls({name: np.unique(flights[name]).tolist() for name in CATEGORIES})

    @property
    def names(self) -> list[str]:
        """One per column of the matrix."""
        measures = ["intercept", "departure delay (h)", "late departure (h)", "distance (1000 miles)"]
        return measures + [f"{name}={level}" for name in CATEGORIES for level in self.levels[name]]

    def matrix(self, flights: Columns) -> Matrix:
        """Shape (flights, columns); the measures are scaled to about 1, so that one penalty suits all."""
        hours = flights["dep_delay"].astype(np.float64) / 60
        measures = [np.ones_like(hours), hours, hours.clip(min=0), flights["distance"] / 1000]
        dummies = [flights[name] == level for name in CATEGORIES for level in self.levels[name]]
        return np.column_stack([*measures, *dummies]).astype(np.float64)
