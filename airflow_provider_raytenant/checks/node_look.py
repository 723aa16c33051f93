"""Runs on the cluster, as ``python -c``: looks at nodes from within and prints what it found.

It stands alone: the standard library, Ray by name, and boto3 where a node has it. It changes nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import sys
from typing import Any

MARK = "raytenant-doctor: "
"""Before the report, a line of JSON."""

MOST_NODES = 20
S3_SECONDS = 4


def look(spec: dict[str, Any]) -> dict[str, Any]:
    """One node as it is.

    :param spec: ``packages`` to look for, and ``s3``: URLs by tenant with the tenant's own AWS variables.
    """
    return {
        "python": platform.python_version(),
        "missing": [name for name in spec["packages"] if importlib.util.find_spec(name) is None],
        "start_timeout": os.environ.get("RAY_JOB_START_TIMEOUT_SECONDS"),
        "s3": {tenant: try_s3(url, variables) for tenant, (url, variables) in spec["s3"].items()},
    }


def try_s3(url: str, variables: dict[str, str]) -> str:
    """Empty where the prefix can be listed, or an address read; ``no boto3``, or what went wrong."""
    if not url.startswith("s3://"):
        return try_address(url)
    try:
        session = importlib.import_module("boto3").session.Session()
        config = importlib.import_module("botocore.config").Config(
            signature_version="s3v4",
            connect_timeout=S3_SECONDS,
            read_timeout=S3_SECONDS,
            retries={"total_max_attempts": 1},
        )
    except ImportError:
        return "no boto3"
    bucket, _, prefix = url[len("s3://") :].partition("/")
    endpoint = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL")
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")
    errors = importlib.import_module("botocore.exceptions")
    try:
        client = session.client("s3", config=config, endpoint_url=endpoint, region_name=region)
        client.list_objects_v2(Bucket=bucket, Prefix=prefix.rstrip("/") + "/", MaxKeys=1)
    except (errors.BotoCoreError, errors.ClientError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def try_address(url: str) -> str:
    """Empty where a presigned address can be read, or what went wrong, without its signature."""
    request = importlib.import_module("urllib.request")
    try:
        with request.urlopen(url, timeout=S3_SECONDS):
            return ""
    except (OSError, ValueError) as error:
        return f"{url.partition('?')[0]}: {type(error).__name__}: {getattr(error, 'reason', error)}"[:300]


def look_at_all(spec: dict[str, Any]) -> dict[str, Any]:
    """Reports by node id: the head's first, then those of other alive nodes, up to :data:`MOST_NODES`."""
    ray = importlib.import_module("ray")
    affinity = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    ray.init(log_to_driver=False)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes.sort(key=lambda node: "node:__internal_head__" not in node["Resources"])
    # No CPU: it needs no room, and a head that takes no work is looked at, too.
    task = ray.remote(num_cpus=0, max_retries=0)(look)
    asked = {
        task.options(scheduling_strategy=affinity(node["NodeID"], soft=False)).remote(spec): node["NodeID"]
        for node in nodes[:MOST_NODES]
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=spec["seconds"])
    reports = {asked[one]: ray.get(one) for one in answered}
    return {"alive": len(nodes), "asked": len(asked), "nodes": reports}


def main(argument: str) -> None:
    """Look, and print the report. What goes wrong here is in the job's output, and ends it as FAILED."""
    report = {"python": platform.python_version(), **look_at_all(json.loads(argument))}
    print("\n" + MARK + json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
