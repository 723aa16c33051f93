"""The job of acme: one day's delay statistics, a Ray task per carrier.

python delays.py 2013-01-01 --workers 2
"""

from __future__ import annotations

import argparse
from datetime import date
from importlib.metadata import version

from carrier_delays import split_by_carrier, statistics
from jobkit import result, storage, tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("day", type=date.fromisoformat)
    parser.add_argument("--workers", type=int, default=1, help="tasks at a time: what the DAG declares")
    arguments = parser.parse_args()

    parts = split_by_carrier(storage.read(storage.url(f"flights/{arguments.day}.csv")))
    computed = tasks.at_most(arguments.workers, statistics, parts.values())
    carriers = dict(zip(parts, computed, strict=True))

    summary = {
        "day": str(arguments.day),
        "rows": sum(carrier["flights"] for carrier in computed),
        "cancelled": sum(carrier["cancelled"] for carrier in computed),
        "polars": version("polars"),
    }
    target = storage.url(f"delays/{arguments.day}.json")
    storage.write_json(target, {**summary, "carriers": carriers})
    result.hand_back({**summary, "carriers": len(carriers), "written": target})


if __name__ == "__main__":
    main()
