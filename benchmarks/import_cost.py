"""What importing the operator adds to a DAG file that has imported Airflow's SDK: milliseconds and megabytes.

``make bench SUITE=import``. Each figure is the median of fresh processes with bytecode in place, as an
installed package has it; the last line is JSON. To reach:
at most 60 ms and 8 MB, and none of ray, boto3, aiohttp, fastapi.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

ROUNDS = 9
MOST_MS, MOST_MB = 60.0, 8.0

_CODE = """
import json, resource, sys, time
from airflow.sdk import DAG, BaseOperator
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6
known, before, started = set(sys.modules), rss(), time.perf_counter()
import airflow_provider_raytenant.operators.job
seconds = time.perf_counter() - started
heavy = [m for m in ("ray", "boto3", "aiohttp", "fastapi") if m in sys.modules and m not in known]
figures = {"ms": seconds * 1000, "mb": rss() - before, "modules": len(set(sys.modules) - known)}
print(json.dumps({**figures, "heavy": heavy}))
"""


def main() -> int:
    """Measure, print a line for people and one of JSON; exit code 1 if the aims are missed."""
    with tempfile.TemporaryDirectory() as home:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        env["AIRFLOW_HOME"] = home
        _measure(env)
        rounds = [_measure(env) for _ in range(ROUNDS)]
    figures = {key: round(statistics.median(r[key] for r in rounds), 1) for key in ("ms", "mb", "modules")}
    heavy = sorted({name for r in rounds for name in r["heavy"]})
    reached = figures["ms"] <= MOST_MS and figures["mb"] <= MOST_MB and not heavy
    print(f"importing the operator: {figures['ms']} ms, {figures['mb']} MB, {figures['modules']} modules")
    print(json.dumps({"suite": "import", "figures": {**figures, "heavy": heavy}, "reached": reached}))
    return 0 if reached else 1


def _measure(env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", _CODE], env=env, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    raise SystemExit(main())
