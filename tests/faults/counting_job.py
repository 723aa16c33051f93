"""The entrypoint of the fault suite's jobs: count this start, wait to be released, end.

``counting_job.py RUN`` appends ``start <submission id> <process id>`` to ``$FAULT_COUNT_DIR/RUN``, before it
``overlap <submission id>`` for each process of an earlier start that still lives, then ``line N`` to its
output once a second until ``RUN.go`` is there, and last ``end <submission id> <lines printed>`` to the file.
"""

import json
import os
import sys
import time
from pathlib import Path

LIMIT = 600.0
"""Seconds after which it ends by itself: nothing of a broken test is to live for ever."""


def lives(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> None:
    count = Path(os.environ["FAULT_COUNT_DIR"]) / sys.argv[1]
    config = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])
    job = config["metadata"]["job_submission_id"]
    earlier = count.read_text().splitlines() if count.exists() else []
    said = [
        f"overlap {line.split()[1]}"
        for line in earlier
        if line.startswith("start ") and lives(int(line.split()[2]))
    ]
    with count.open("a") as file:
        file.write("\n".join([*said, f"start {job} {os.getpid()}"]) + "\n")
    begun = time.monotonic()
    number = 0
    while not count.with_name(count.name + ".go").exists() and time.monotonic() - begun < LIMIT:
        if time.monotonic() - begun >= number:
            print(f"line {number}", flush=True)
            number += 1
        time.sleep(0.2)
    with count.open("a") as file:
        file.write(f"end {job} {number}\n")


main()
