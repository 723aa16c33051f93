"""Prints its secrets in the driver and in a task, and hands back what proves that it had them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import boto3
import ray
from botocore.config import Config

BUCKET, FOLDER = "raytenant", "tenants/acme/canary"
PATIENCE = 120.0


def seen() -> dict[str, str]:
    """Digests of what this process finds in its environment, which it also prints."""
    found = {name: os.environ[name] for name in ("CANARY", "CANARY_DSN")}
    print("singing", found, flush=True)
    logging.getLogger("canary").warning("singing %s", found)
    return {name: hashlib.sha256(value.encode()).hexdigest() for name, value in found.items()}


def main() -> None:
    ray.init()
    digests = {"driver": seen(), "worker": ray.get(ray.remote(num_cpus=0)(seen).remote())}
    s3 = boto3.client("s3", config=Config(signature_version="s3v4"))
    keys = boto3.session.Session().get_credentials().get_frozen_credentials()
    # The test looks for these as well; the storage is the one place where they may be.
    put(s3, "keys.json", {"secret_key": keys.secret_key, "token": keys.token})
    begun = time.monotonic()
    while not s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{FOLDER}/go").get("KeyCount"):
        if time.monotonic() - begun > PATIENCE:
            raise TimeoutError("nobody let it go on")
        time.sleep(0.3)
    result = {**digests, "printed": os.environ["CANARY"]}
    Path(os.environ["RAYTENANT_RESULT_PATH"]).write_text(json.dumps(result))


def put(s3: Any, name: str, value: object) -> None:
    s3.put_object(Bucket=BUCKET, Key=f"{FOLDER}/{name}", Body=json.dumps(value).encode())


main()
