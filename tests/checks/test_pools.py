from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_raytenant.checks.finding import Finding, Level
from airflow_provider_raytenant.checks.pools import judge_pools
from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.pool_rows import ExistingPool
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import TenantFile

GIB = 1024**3
NODES = {"one": [Node("n", Resources(cpus=4, memory=8 * GIB))]}
FILE = TenantFile.model_validate(
    {
        "deployment": "prod",
        "clusters": {"one": {"ray_conn_id": "r", "groups": {"cpu": {"slot": {"cpus": 1, "memory": "1GiB"}}}}},
        "tenants": {
            "acme": {"name": "acme", "cluster": "one", "guarantee": 2},
            "globex": {"name": "globex", "cluster": "one", "limit": 1},
        },
    }
)
RIGHT = {
    pool.name: ExistingPool(pool.name, pool.wanted, pool.description)
    for pool in plan(FILE, NODES, {}, {}).pools
}


def judged(
    existing: dict[str, ExistingPool],
    requests: dict[str, tuple[int, str]] | None = None,
    file: TenantFile = FILE,
) -> dict[str, list[Finding]]:
    """Findings that are not ok, by tenant."""
    found: dict[str, list[Finding]] = {}
    for finding in judge_pools(file, plan(file, NODES, existing, requests or {}), existing):
        if finding.level is not Level.OK:
            found.setdefault(finding.tenant or "", []).append(finding)
    return found


def test_pools_in_step_are_ok_and_say_what_is_held() -> None:
    found = list(judge_pools(FILE, plan(FILE, NODES, RIGHT, {}), RIGHT))
    assert [(f.level, f.cluster, f.tenant) for f in found] == [
        (Level.OK, "one", "acme"),
        (Level.OK, "one", "globex"),
    ]
    assert found[0].found == "ray.acme: slots 3, held 0, deferred tasks counted"


def test_a_missing_pool_is_a_failure_of_its_tenant() -> None:
    found = judged({"ray.globex": RIGHT["ray.globex"]})
    assert list(found) == ["acme"]
    assert (found["acme"][0].level, "is missing" in found["acme"][0].found) == (Level.FAILURE, True)
    assert "pools sync" in found["acme"][0].advice


def test_a_pool_that_does_not_count_deferred_tasks_is_a_failure() -> None:
    found = judged({**RIGHT, "ray.acme": replace(RIGHT["ray.acme"], include_deferred=False)})
    assert (found["acme"][0].level, "include_deferred" in found["acme"][0].found) == (Level.FAILURE, True)


def test_another_size_is_no_trouble_and_shown_with_both_numbers() -> None:
    other = {**RIGHT, "ray.acme": replace(RIGHT["ray.acme"], slots=2)}
    assert judged(other) == {}
    found = list(judge_pools(FILE, plan(FILE, NODES, other, {}), other))
    assert found[0].found == "ray.acme: slots 2 (3 at the next sync), held 0, deferred tasks counted"


def test_an_old_description_is_a_warning() -> None:
    old = RIGHT["ray.acme"].description.replace("1GiB", "2GiB")
    found = judged({**RIGHT, "ray.acme": replace(RIGHT["ray.acme"], description=old)})
    assert (found["acme"][0].level, found["acme"][0].found) == (
        Level.WARNING,
        "ray.acme has an old description",
    )


def test_a_pool_of_somebody_elses_is_a_failure() -> None:
    found = judged({**RIGHT, "ray.acme": replace(RIGHT["ray.acme"], description="hers")})
    assert [f.level for f in found["acme"]] == [Level.WARNING, Level.FAILURE]
    assert "not of our making" in found["acme"][1].found


def test_a_task_larger_than_its_pool_is_a_failure_that_names_it() -> None:
    found = judged(RIGHT, {"ray.acme": (9, "etl.load")})
    assert found["acme"][0].level is Level.FAILURE
    assert "etl.load asks for 9 slots, the pool can have 4 at most" in found["acme"][0].found
    assert judged(RIGHT, {"ray.acme": (4, "etl.load")}) == {}


def test_a_leftover_pool_is_a_warning_of_airflow() -> None:
    old = ExistingPool("ray.gone", 1, RIGHT["ray.acme"].description)
    found = judged({**RIGHT, "ray.gone": old})
    assert [(f.level, f.check) for f in found[""]] == [(Level.WARNING, "leftover pool")]


@pytest.mark.parametrize(("guarantee", "levels"), [(4, []), (5, [Level.FAILURE])])
def test_guarantees_that_the_cluster_cannot_give_are_a_failure_of_the_cluster(
    guarantee: int, levels: list[Level]
) -> None:
    tenants = {**FILE.tenants, "acme": FILE.tenants["acme"].model_copy(update={"guarantee": guarantee})}
    file = FILE.model_copy(update={"tenants": tenants})
    found = list(judge_pools(file, plan(file, NODES, RIGHT, {}), RIGHT))
    promises = [f for f in found if f.check == "guarantees"]
    assert [f.level for f in promises] == levels
    assert all((f.cluster, f.tenant) == ("one", None) for f in promises)


def test_a_pool_without_a_slot_is_a_warning() -> None:
    limit = FILE.tenants["globex"].model_copy(update={"limit": 0})
    file = FILE.model_copy(update={"tenants": {**FILE.tenants, "globex": limit}})
    planned = {p.name: ExistingPool(p.name, p.wanted, p.description) for p in plan(file, NODES, {}, {}).pools}
    found = judged(planned, file=file)
    assert (found["globex"][0].level, "can have no slot" in found["globex"][0].found) == (Level.WARNING, True)
