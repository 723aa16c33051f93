"""The deployment that demo and tests run: two tenants of one Ray cluster, real data, synced pools."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_provider_raytenant.local.s3_server import ROLE_ARN
from stack import flights
from stack.stack import Stack

ROOT = Path(__file__).resolve().parent.parent
CLUSTER_RAY = ROOT / ".venv-cluster" / "bin" / "ray"
NODE_ENV = {"PIP_NO_COMPILE": "1"}
"""On two cores, compiling all of a package for a job's environment takes longer than the job."""

RAY_CONN_ID = "ray_shared"
AWS_CONN_ID = "aws_lake"
DEPLOYMENT = "demo"

TENANT_FILE = """\
deployment: demo
defaults:
  cluster: shared
  storage: s3://{bucket}/tenants/{{tenant}}
  credentials: {{aws_conn_id: aws_lake, role_arn: "{role_arn}"}}
clusters:
  shared:
    ray_conn_id: ray_shared
    groups:
      cpu: {{slot: {{cpus: 1, memory: 512MiB}}}}
tenants:
  acme:
    guarantee: 3
    weight: 2
    runtime_env: {{env_vars: {{REGION: eu}}}}
    rules: {{secrets: [acme_*]}}
  globex:
    guarantee: 3
    runtime_env: {{env_vars: {{REGION: us}}}}
"""


def write_tenant_file(path: Path, bucket: str = "raytenant", text: str = TENANT_FILE) -> Path:
    """Write the tenant file for a bucket of the local S3 server."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(bucket=bucket, role_arn=ROLE_ARN), encoding="utf-8")
    return path


def airflow_environment(stack: Stack) -> Mapping[str, str]:
    """The connections to the stack's Ray cluster and S3, for Airflow's processes."""
    ray: dict[str, object] = {
        "conn_type": "ray",
        "host": stack.ray.dashboard_url,
        "password": stack.ray.token,
    }
    connections: dict[str, dict[str, object]] = {RAY_CONN_ID: ray}
    if stack.s3 is not None:
        # Only Airflow has these keys. They assume the role; the cluster's nodes have none at all.
        connections[AWS_CONN_ID] = {
            "conn_type": "aws",
            "login": stack.s3.access_key,
            "password": stack.s3.secret_key,
            "extra": {"endpoint_url": stack.s3.endpoint_url, "region_name": stack.s3.region},
        }
    return {f"AIRFLOW_CONN_{name.upper()}": json.dumps(each) for name, each in connections.items()}


def seed_flights(stack: Stack, months: tuple[int, ...] = (1,)) -> int:
    """Put the flights of these months of 2013 under both tenants' prefixes; the number of objects."""
    if stack.s3 is None:
        raise RuntimeError("the stack was started without S3")
    keys = flights.seed(stack.s3.client(), stack.s3.bucket, "tenants/acme", "tenants/globex", months)
    return len(keys)


def cluster_ray() -> Path:
    """The ``ray`` that nodes are started with: of the small environment for nodes if it was made.

    A job's ``pip`` clones the environment that Ray runs in, so a large one makes every job slow.
    """
    return CLUSTER_RAY if CLUSTER_RAY.exists() else Path(sys.executable).with_name("ray")
