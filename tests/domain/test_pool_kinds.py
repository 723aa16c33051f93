"""A tenant's pools for large requests and backfills, beside its main one, in the plan and over time."""

from __future__ import annotations

from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.pool_rows import ExistingPool, PoolPlan
from airflow_provider_raytenant.domain.tenants import Tenant, TenantFile
from tests.domain.helpers import make_cluster, make_file, make_node, make_tenant
from tests.domain.test_pools_over_time import CAPACITY, CLUSTER, Airflow

NODES = {"shared": [make_node(CAPACITY, 4 * CAPACITY)]}


def planned(
    *tenants: Tenant, demand: dict[str, Demand] | None = None, **occupied: int
) -> tuple[PoolPlan, dict[str, ExistingPool]]:
    """The plan once pools are there, with so many slots of them in use."""
    file = make_file(CLUSTER, *tenants)
    names = {name.replace("__", "."): slots for name, slots in occupied.items()}
    pools = {
        row.name: ExistingPool(row.name, row.wanted, row.description, occupied=names.get(row.name, 0))
        for row in plan(file, NODES, {}, {}).pools
    }
    return plan(file, NODES, pools, {}, demand), pools


def slots_of(found: PoolPlan) -> dict[str, int]:
    return {row.name: row.wanted for row in found.pools}


def why_of(found: PoolPlan) -> dict[str, str]:
    return {row.name: row.why.rpartition("; shared")[0] for row in found.pools}


def test_pools_of_their_own_are_made_and_say_what_they_are_for() -> None:
    acme = make_tenant(guarantee=4, large_from=8, backfill={"limit": 6})
    found, pools = planned(acme)
    assert slots_of(found) == {"ray.acme": 16, "ray.acme.large": 0, "ray.acme.backfill": 0}
    assert why_of(found) == {
        "ray.acme": "guarantee 4, weight 1; 16 of headroom",
        "ray.acme.large": "large requests, of 8 slots or more",
        "ray.acme.backfill": "backfills, weight 0.25, limit 6",
    }
    assert "group cpu of shared, large requests; one slot is" in pools["ray.acme.large"].description
    assert [row.most for row in found.pools] == [16, 16, 6]


def test_a_tenants_pools_share_its_limit_and_its_guarantee() -> None:
    acme = make_tenant(guarantee=6, limit=10, large_from=8, backfill={})
    demand = {"ray.acme": Demand((1,) * 20), "ray.acme.backfill": Demand((1,) * 20)}
    found, _ = planned(acme, make_tenant("globex"), demand=demand | {"ray.globex": Demand((1,) * 20)})
    # Ten at most for acme, four parts of five to live tasks.
    assert slots_of(found) == {"ray.acme": 8, "ray.acme.large": 0, "ray.acme.backfill": 2, "ray.globex": 6}
    assert why_of(found)["ray.acme"].endswith("20 wait for 20 slots, 8 free for that; 4 borrowed")


def test_a_backfill_alone_has_all_but_never_more_than_its_limit() -> None:
    demand = {"ray.acme.backfill": Demand((1,) * 40)}
    assert slots_of(planned(make_tenant(backfill={}), demand=demand)[0])["ray.acme.backfill"] == CAPACITY
    limited = planned(make_tenant(backfill={"limit": 5}), demand=demand)[0]
    assert slots_of(limited) == {"ray.acme": 11, "ray.acme.backfill": 5}


def test_a_pool_that_the_file_no_longer_asks_for_serves_its_tasks_and_then_goes() -> None:
    with_large = make_file(CLUSTER, make_tenant(large_from=8))
    rows = plan(with_large, NODES, {}, {}).pools
    pools = {row.name: ExistingPool(row.name, row.wanted, row.description) for row in rows}
    without = make_file(CLUSTER, make_tenant())
    demand = {"ray.acme.large": Demand((9,))}
    waited = plan(without, NODES, pools, {}, demand)
    assert slots_of(waited)["ray.acme.large"] == 9
    gone = plan(without, NODES, pools, {})
    assert [row.change.value for row in gone.pools if row.name == "ray.acme.large"] == ["delete"]


def test_a_request_above_a_backfills_limit_is_none_of_its_pools() -> None:
    large = {"ray.acme.large": (17, "etl.load")}
    file = make_file(CLUSTER, make_tenant(large_from=8))
    assert plan(file, NODES, {}, large).problems == (
        "pool ray.acme.large: task etl.load asks for 17 slots, the pool can have 16 at most: "
        "it would wait for ever",
    )


def streams(**values: object) -> Airflow:
    return Airflow(make_file(CLUSTER, make_tenant(**values), make_tenant("globex")))


def test_a_large_task_starts_beside_a_stream_of_its_own_tenants_small_ones() -> None:
    world = streams(large_from=8)
    world.run(1)
    world.wait("ray.acme.large", (12, 10))
    for n in range(300):
        for pool in ("ray.acme", "ray.globex"):
            world.wait(pool, *[(1, 7 + n % 5)] * 3)
        world.run(1)
        if not world.waiting["ray.acme.large"]:
            break
    assert world.in_use("ray.acme.large") == 12
    assert world.peak <= CAPACITY


def test_in_one_pool_with_small_ones_that_stand_before_it_it_starves() -> None:
    world = streams()
    world.run(1)
    world.wait("ray.acme", (12, 10))
    for n in range(300):
        world.wait("ray.globex", *[(1, 7 + n % 5)] * 3)
        # Of a higher priority, or an earlier date.
        world.waiting["ray.acme"] = [(1, 7 + n % 5)] * 3 + world.waiting["ray.acme"]
        world.run(1)
    assert (12, 10) in world.waiting["ray.acme"]


def test_live_tasks_take_back_what_a_backfill_has_borrowed() -> None:
    world = streams(backfill={"weight": 0.25})
    world.run(1)
    world.wait("ray.acme.backfill", *[(1, 20 + n % 7) for n in range(200)])
    world.run(10)
    assert world.in_use("ray.acme.backfill") == CAPACITY
    for _ in range(60):
        world.wait("ray.acme", *[(1, 10)] * 2)
        world.run(1)
    # Four parts of five are the live tasks'.
    assert world.in_use("ray.acme.backfill") in (3, 4)
    assert world.peak == CAPACITY


def test_pools_of_groups_other_than_the_first_have_their_own_large_ones() -> None:
    file = TenantFile(
        deployment="test",
        clusters={"shared": make_cluster()},
        tenants={"acme": make_tenant(large_from={"gpu": 2})},
    )
    nodes = {"shared": [make_node(16, 64), make_node(32, 256, 4)]}
    found = plan(file, nodes, {}, {}, {"ray.acme.gpu.large": Demand((2,))})
    assert slots_of(found) == {"ray.acme": 16, "ray.acme.gpu": 2, "ray.acme.gpu.large": 2}
