"""The job of the renewal test: a driver, an actor of the first hour, and one on a node that comes later.

Each makes its client once and keeps it. Every step writes an object that says which step it was.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import ray

BUCKET, PREFIX = "lake", "tenants/acme/"
PATIENCE = 100.0


def client() -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client("s3", config=Config(retries={"total_max_attempts": 1}))


class Writer:
    """Writes under a name of its own, with one client for its whole life."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.s3 = client()
        self.steps = 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        key = f"{PREFIX}{self.name}/{self.steps}"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=str(self.steps).encode())
        read = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
        return {
            "name": self.name,
            "read": int(read),
            "node": ray.get_runtime_context().get_node_id(),
            # Backwards, since the runner hides it in the result.
            "secret": os.environ["CANARY"][::-1],
            "config": os.environ["AWS_CONFIG_FILE"],
            "claim": os.environ.get("RAYTENANT_CLAIM"),
        }


def main() -> None:
    ray.init()
    own = Writer("driver")
    actors = ray.remote(num_cpus=1)(Writer)
    early = actors.remote("early")
    first = own.step()
    ray.get(early.step.remote())
    # As long as the test likes: it takes the first credentials' death for the moment to add a node.
    late = actors.options(label_selector={"place": "late"}).remote("late")
    answer = late.step.remote()
    begun = time.monotonic()
    while not ray.wait([answer], timeout=1.0)[0]:
        own.step()
        ray.get(early.step.remote())
        if time.monotonic() - begun > PATIENCE:
            raise TimeoutError("no late node came")
    last = {"driver": own.step(), "early": ray.get(early.step.remote()), "late": ray.get(answer)}
    result = {"first": first, "last": last, "again": ray.get(late.step.remote())}
    Path(os.environ["RAYTENANT_RESULT_PATH"]).write_text(json.dumps(result))


main()
