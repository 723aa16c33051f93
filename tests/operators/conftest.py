"""A tenant file that the operator reads when it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_raytenant.operators import prepare

TENANTS = """\
deployment: test
defaults: {cluster: shared, storage: "s3://lake/tenants/{tenant}", credentials: node}
clusters:
  shared:
    ray_conn_id: ray_shared
    groups:
      cpu: {slot: {cpus: 1, memory: 1GiB}}
      gpu: {slot: {gpus: 1, cpus: 4, memory: 16GiB}}
      big: {slot: {cpus: 8, memory: 64GiB}, labels: {size: big}}
  plain:
    ray_conn_id: ray_plain
    groups:
      cpu: {slot: {cpus: 1, memory: 1GiB}}
tenants:
  acme: {limit: 16, runtime_env: {pip: [pandas==2.2.3], env_vars: {REGION: eu}}}
  globex: {rules: {pools: [hers]}}
  initech: {cluster: plain}
  soylent: {cluster: plain, nodes: {label: {team: soylent}}}
  tyrell: {cluster: plain, nodes: {resource: tyrell_node}}
  wayne: {cluster: plain, nodes: {label: {team: 7}}}
  ruled:
    rules:
      bundles: [ruled-*]
      teams: [ruled]
      largest: {cpus: 2}
      resources: [fpga]
      label_selector: {zone: [a]}
      pip_index: ["https://pkgs.example.org/simple"]
  sized: {large_from: 8, backfill: {limit: 4}, tiny: {below: {cpus: 0.5, memory: 256MiB}}}
  strict: {tiny: {below: {cpus: 0.5}, action: refuse}}
  noded: {rules: {secrets: [noded_*]}}
  scoped:
    credentials: {aws_conn_id: aws, role_arn: "arn:aws:iam::000000000000:role/jobs"}
    rules: {secrets: [scoped_*]}
"""


@pytest.fixture(autouse=True)
def tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the configured tenant file."""
    file = tmp_path / "raytenant.yaml"
    file.write_text(TENANTS)
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", str(file))
    return file


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything but the talk with the cluster, which other tests have."""
    calls: list[Any] = []

    async def ready(*arguments: Any) -> None:
        calls.append(arguments)

    async def nothing(*arguments: Any) -> None: ...

    monkeypatch.setattr(prepare, "_make_ready", ready)
    monkeypatch.setattr(prepare, "_stop_older_tries", nothing)
    monkeypatch.setenv("AIRFLOW_CONN_RAY_SHARED", '{"conn_type": "ray", "host": "http://head:8265"}')
    return calls
