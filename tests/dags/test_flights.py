from __future__ import annotations

import io
import threading
from datetime import date

import pandas as pd
import pytest

from stack.flights import daily_statistics, flights, seed


class Bucket:
    """Keeps what is put into it, as the S3 client's `put_object` would."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> None:
        assert (Bucket, ContentType) == ("lake", "text/csv")
        with self._lock:
            assert Key not in self.objects, f"{Key} was put twice"
            self.objects[Key] = Body


@pytest.fixture(scope="module")
def february() -> tuple[Bucket, list[str]]:
    bucket = Bucket()
    return bucket, seed(bucket, "lake", "tenants/acme/", "tenants/globex", months=(2,))


def test_the_data_set_is_whole() -> None:
    table = flights()
    assert len(table) == 336_776
    assert set(table["year"]) == {2013}
    assert table.groupby(["month", "day"]).ngroups == 365


def test_seed_writes_a_day_per_object_for_acme_and_a_month_for_globex(
    february: tuple[Bucket, list[str]],
) -> None:
    bucket, keys = february
    days = [f"tenants/acme/flights/2013-02-{day:02}.csv" for day in range(1, 29)]
    assert set(bucket.objects) == {*days, "tenants/globex/flights/2013-02.csv"}
    assert sorted(keys) == sorted(bucket.objects)


def test_seeded_objects_hold_every_flight_once(february: tuple[Bucket, list[str]]) -> None:
    bucket, _ = february
    tables = {key: pd.read_csv(io.BytesIO(body)) for key, body in bucket.objects.items()}
    month = tables.pop("tenants/globex/flights/2013-02.csv")
    expected = flights().query("month == 2").reset_index(drop=True)
    pd.testing.assert_frame_equal(month, expected)
    assert sum(map(len, tables.values())) == len(month)
    for key, table in tables.items():
        assert set(table["time_hour"].str[:7]) <= {"2013-02", "2013-03"}  # UTC
        assert set(table["day"]) == {int(key[-6:-4])}


def test_seed_takes_only_the_months_asked() -> None:
    bucket = Bucket()
    seed(bucket, "lake", "a", "g", months=(4, 6, 4))
    assert sum(key.startswith("a/flights/") for key in bucket.objects) == 60
    assert {key for key in bucket.objects if key.startswith("g/")} == {
        "g/flights/2013-04.csv",
        "g/flights/2013-06.csv",
    }


def test_a_day_outside_the_data_has_no_carriers() -> None:
    assert daily_statistics(date(2014, 1, 1)) == {}
