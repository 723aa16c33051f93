"""Pauses: what is closed, what stays open, what a sync makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain import pool_pauses
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pausing import Target, find_target, pauses_in, with_pauses
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.pool_rows import ExistingPool, PoolPlan, PoolsNow
from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.exceptions import RequestError
from tests.domain.helpers import make_cluster, make_file, make_node, make_tenant, seeded

ONE_GROUP = make_cluster(groups={"cpu": {"slot": {"cpus": 1, "memory": "4GiB"}}})
FILE = make_file(
    ONE_GROUP,
    make_tenant(large_from=4),
    make_tenant("globex"),
    make_tenant("far", cluster="other"),
    other=ONE_GROUP,
)
NODES = {name: [make_node(8, 32)] for name in ("shared", "other")}
ACME = Target("tenant", "acme")
SHARED = Target("cluster", "shared")

Pools = dict[str, ExistingPool]


def written(planned: PoolPlan, pools: Pools) -> Pools:
    return pools | {
        row.name: ExistingPool(row.name, row.wanted, row.description, occupied=row.occupied)
        for row in planned.changes
    }


def synced(pools: Pools, demand: dict[str, Demand] | None = None, file: TenantFile = FILE) -> Pools:
    return written(plan(file, NODES, pools, {}, demand), pools)


def paused(target: Target, pools: Pools, file: TenantFile = FILE) -> Pools:
    return written(pool_pauses.pause(file, target, PoolsNow(pools)), pools)


def resumed(target: Target, pools: Pools) -> Pools:
    return written(pool_pauses.resume(target, PoolsNow(pools)), pools)


def slots(pools: Pools) -> dict[str, int]:
    return {name: pool.slots for name, pool in pools.items()}


def test_a_paused_tenant_has_no_slots_whoever_syncs_and_others_have_them() -> None:
    pools = paused(ACME, synced({}))
    assert slots(pools) == {"ray.acme": 0, "ray.acme.large": 0, "ray.globex": 4, "ray.far": 8}
    demand = {"ray.acme": Demand((1, 1)), "ray.globex": Demand((1,) * 9)}
    after = synced(pools, demand)
    assert slots(after) == {"ray.acme": 0, "ray.acme.large": 0, "ray.globex": 8, "ray.far": 8}
    rows = {row.name: row for row in plan(FILE, NODES, after, {}, demand).pools}
    assert "; paused, 2 wait; " in rows["ray.acme"].why
    assert "; paused with tenant acme; " in after["ray.acme"].description
    assert rows["ray.acme"].most == 8


def test_a_resumed_tenant_gets_its_slots_with_the_next_sync() -> None:
    before = synced({})
    after = resumed(ACME, paused(ACME, before))
    assert slots(after)["ray.acme"] == 0
    assert {name: pool.description for name, pool in after.items()} == {
        name: pool.description for name, pool in before.items()
    }
    assert slots(synced(after)) == slots(before)


def test_what_runs_goes_on_and_its_slots_are_nobodys() -> None:
    pools = synced({})
    pools["ray.acme"] = ExistingPool("ray.acme", 5, pools["ray.acme"].description, occupied=5)
    after = synced(paused(ACME, pools), {"ray.globex": Demand((1,) * 9)})
    assert (slots(after)["ray.acme"], slots(after)["ray.globex"]) == (0, 3)


def test_a_paused_cluster_closes_the_pools_of_all_its_tenants_and_no_others() -> None:
    pools = synced(paused(SHARED, synced({})))
    assert slots(pools) == {"ray.acme": 0, "ray.acme.large": 0, "ray.globex": 0, "ray.far": 8}


def test_a_tenant_that_comes_while_its_cluster_is_paused_waits_too() -> None:
    pools = paused(SHARED, synced({}))
    tenants = [*FILE.tenants.values(), make_tenant("late")]
    file = make_file(ONE_GROUP, *tenants, other=ONE_GROUP)
    after = synced(pools, file=file)
    assert slots(after)["ray.late"] == 0
    assert pauses_in(after["ray.late"].description) == {SHARED}


def test_both_pauses_have_to_end() -> None:
    pools = synced(paused(SHARED, paused(ACME, synced({}))))
    assert pauses_in(pools["ray.acme"].description) == {ACME, SHARED}
    pools = synced(resumed(SHARED, pools))
    assert (slots(pools)["ray.acme"], slots(pools)["ray.globex"]) == (0, 8)
    assert slots(synced(resumed(ACME, pools))) == slots(synced({}))


def test_a_tenant_that_moves_leaves_the_pause_of_its_old_cluster_behind() -> None:
    pools = paused(SHARED, synced({}))
    moved = make_tenant("globex", cluster="other")
    file = make_file(ONE_GROUP, make_tenant(), moved, other=ONE_GROUP)
    assert slots(synced(pools, file=file))["ray.globex"] == 8


def test_a_pause_before_the_first_sync_makes_closed_pools() -> None:
    pools = paused(ACME, {})
    assert slots(pools) == {"ray.acme": 0, "ray.acme.large": 0}
    assert slots(synced(pools))["ray.acme"] == 0


def test_a_pool_of_somebody_elses_stays_open_and_is_told() -> None:
    pools = {**synced({}), "ray.acme": ExistingPool("ray.acme", 9, "hers")}
    found = pool_pauses.pause(FILE, ACME, PoolsNow(pools))
    assert [row.name for row in found.changes] == ["ray.acme.large"]
    assert found.problems == ("pool ray.acme: is not of our making, so it stays open; delete or rename it",)


def test_a_pool_with_slots_of_an_old_shape_closes_and_goes_on_saying_which() -> None:
    pools = synced({})
    old = pools["ray.acme"].description.replace("4GiB", "2GiB")
    pools["ray.acme"] = ExistingPool("ray.acme", 5, old, occupied=2)
    after = paused(ACME, pools)["ray.acme"]
    assert (after.slots, "one slot is 1 CPU + 2GiB; paused with tenant acme; " in after.description) == (
        0,
        True,
    )


def test_what_was_not_paused_is_not_resumed() -> None:
    assert pool_pauses.resume(ACME, PoolsNow(synced({}))).changes == ()


@pytest.mark.parametrize(
    ("text", "target"),
    [("acme", ACME), ("tenant:acme", ACME), ("shared", SHARED), ("cluster:shared", SHARED)],
)
def test_a_name_says_what_is_meant(text: str, target: Target) -> None:
    assert find_target(FILE, text) == target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acne", "found 'acne'; allowed: clusters other, shared; tenants acme, far, globex"),
        ("cluster:acme", "found 'cluster:acme'; allowed: clusters other"),
        ("x:acme", "found 'x:acme'; allowed: clusters"),
        ("", "found ''; allowed: clusters"),
        ("other", "found 'other', a cluster and a tenant; allowed: cluster:other, tenant:other"),
    ],
)
def test_a_name_that_says_nothing_is_refused(text: str, message: str) -> None:
    file = make_file(ONE_GROUP, *FILE.tenants.values(), make_tenant("other"), other=ONE_GROUP)
    with pytest.raises(RequestError) as error:
        find_target(FILE if text == "acne" else file, text)
    assert str(error.value).startswith(message)


_targets = st.sets(
    st.builds(Target, st.sampled_from(["cluster", "tenant"]), st.sampled_from(["acme", "shared", "a-b_9"]))
)


@seeded
@given(st.text(), _targets, _targets)
def test_a_description_keeps_its_own_words_and_the_last_pauses(
    text: str, before: set[Target], after: set[Target]
) -> None:
    text = text.replace("paused with", "")
    assert pauses_in(with_pauses(text, before)) == before
    assert with_pauses(with_pauses(text, before), after) == with_pauses(text, after)
    assert with_pauses(with_pauses(text, before), ()) == text
