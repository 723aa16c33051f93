"""One stack for all end-to-end tests: real Airflow, Ray (token-protected), S3 and PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_raytenant.local.processes import scope_pids
from stack.deployment import (
    NODE_ENV,
    ROOT,
    TENANT_FILE,
    airflow_environment,
    cluster_ray,
    seed_flights,
    write_tenant_file,
)
from stack.stack import RaySize, Stack
from tests.e2e.runs import start

HERE = Path(__file__).parent
CAPACITY = 12
"""Slots of the cluster: twelve logical CPUs and as many times 512 MiB, on one node."""

PASSWORD = "hunter2-of-acme"
"""What the victim of the attacks keeps to itself."""

MORE_TENANTS = """\
  unbound:
    guarantee: 0
    limit: 3
    rules: {{pools: [default_pool]}}
  initech:
    large_from: 6
  # Its name, and so its prefix, begins acme's.
  ac:
    guarantee: 0
    limit: 1
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder needs the stack."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.stack)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The running stack with flights in S3, pools synced and every DAG unpaused."""
    directory = tmp_path_factory.mktemp("stack")
    dags = directory / "dags"
    shutil.copytree(ROOT / "dags", dags)
    shutil.copytree(HERE / "dags", dags, dirs_exist_ok=True)
    with Stack(
        directory,
        dags,
        ray_binary=cluster_ray(),
        ray=RaySize(CAPACITY, CAPACITY * 512 * 1024**2, token="a-token-of-the-tests", env=NODE_ENV),
        tenant_file=write_tenant_file(directory / "raytenant.yaml", text=TENANT_FILE + MORE_TENANTS),
        airflow_env=lambda stack: {**airflow_environment(stack), "AIRFLOW_VAR_ACME_DB_PASSWORD": PASSWORD},
        progress=print,
    ) as running:
        seed_flights(running)
        running.airflow.cli("raytenant", "pools", "sync")
        yield running
    # Whatever the tests did to it, nothing of the stack is left behind.
    assert scope_pids(running.scope) == []


TOGETHER = (
    "result",
    "fails",
    "bad_result",
    "fits_nowhere",
    "times_out",
    "skips",
    "bad_pip",
    "outlives",
    "outlets",
    "on_worker",
    "maps_over",
    "foreign",
    "mapped",
)
"""DAGs of which one run each is started at once: the pools queue them, and the tests look at the ends."""


@pytest.fixture(scope="session")
def started(stack: Stack) -> dict[str, str]:
    """Run ids by DAG id, of one run of each small DAG."""
    return {dag_id: start(stack, dag_id) for dag_id in TOGETHER}


@pytest.fixture(scope="session")
def pools(stack: Stack) -> dict[str, int]:
    """Slots of our pools by name."""
    return {name: pool["slots"] for name, pool in stack.api.pools().items() if name.startswith("ray.")}
