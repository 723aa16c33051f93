"""The job of globex: a delay model of one month, a Ray task per fold of the cross-validation.

python train.py 2013-01 --workers 2
"""

from __future__ import annotations

import argparse
import io
import os
from dataclasses import asdict
from functools import partial

# Before numpy is loaded: the driver asked for one CPU, and numpy's own threads would take all of the node's.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import polars
from delay_model import train
from encoding import Columns
from jobkit import result, storage, tasks

COLUMNS = ["day", "hour", "carrier", "origin", "dest", "distance", "dep_delay", "arr_delay"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("month", help="such as 2013-01")
    parser.add_argument("--workers", type=int, default=1, help="tasks at a time: what the DAG declares")
    arguments = parser.parse_args()

    flights = landed_flights(storage.read(storage.url(f"flights/{arguments.month}.csv")))
    trained = train(flights, partial(tasks.at_most, arguments.workers))

    summary = {"month": arguments.month, "rows": len(flights["day"]), "polars": polars.__version__}
    target = storage.url(f"models/{arguments.month}.json")
    storage.write_json(target, {**summary, **asdict(trained)})
    result.hand_back(
        {
            **summary,
            "mae": trained.model["mae"],
            "baseline_mae": trained.baseline["mae"],
            "r2": trained.model["r2"],
            "written": target,
        }
    )


def landed_flights(month: bytes) -> Columns:
    """The month's flights that left and landed where they were meant to; the others have no delay."""
    table = polars.read_csv(io.BytesIO(month), columns=COLUMNS, infer_schema_length=None).drop_nulls()
    return {name: table[name].to_numpy() for name in COLUMNS}


if __name__ == "__main__":
    main()
