from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.pool_rows import MARK, Change, ExistingPool, PlannedPool, PoolPlan
from airflow_provider_raytenant.domain.tenants import TenantFile
from tests.domain.helpers import make_cluster, make_file, make_node, make_tenant, seeded

NODES = [make_node(16, 64), make_node(32, 256, 4)]
CPU_GROUP = {"cpu": {"slot": {"cpus": 1, "memory": "4GiB"}}}
CPU_ONLY = make_cluster(groups=CPU_GROUP)
DESCRIPTION = (
    f"{MARK} for tenant acme, group cpu of shared; one slot is 1 CPU + 4GiB; "
    "`airflow raytenant pools sync` writes it"
)


def _plan(
    file: TenantFile,
    existing: Iterable[ExistingPool] = (),
    nodes: dict[str, list[Node]] | None = None,
    **requests: tuple[int, str],
) -> PoolPlan:
    pools = {pool.name: pool for pool in existing}
    wanted = {name.replace("__", "."): request for name, request in requests.items()}
    alive = NODES if "gpu" in file.clusters["shared"].groups else NODES[:1]
    return plan(file, {"shared": alive} if nodes is None else nodes, pools, wanted)


def _rows(plan: PoolPlan) -> dict[str, tuple[int | None, int, str]]:
    return {pool.name: (pool.now, pool.wanted, pool.change.value) for pool in plan.pools}


def _applied(plan: PoolPlan, existing: Iterable[ExistingPool]) -> list[ExistingPool]:
    """The pools after somebody wrote the plan."""
    pools = {pool.name: pool for pool in existing}
    for row in plan.changes:
        if row.change is Change.DELETE:
            del pools[row.name]
        else:
            pools[row.name] = ExistingPool(row.name, row.wanted, row.description, True, row.occupied)
    return list(pools.values())


def _ours(slots: int = 16, **values: Any) -> ExistingPool:
    return ExistingPool(**{"name": "ray.acme", "slots": slots, "description": DESCRIPTION, **values})


def test_pools_that_are_not_there_are_created_for_every_tenant_and_group() -> None:
    file = make_file(
        make_cluster(), make_tenant("acme", guarantee=4), make_tenant("globex", limit={"cpu": 2, "gpu": 1})
    )
    planned = _plan(file)
    assert _rows(planned) == {
        "ray.acme": (None, 14, "create"),
        "ray.globex": (None, 2, "create"),
        "ray.acme.gpu": (None, 3, "create"),
        "ray.globex.gpu": (None, 1, "create"),
    }
    assert planned.problems == ()
    assert planned.pools[0].description == DESCRIPTION
    assert planned.pools[0].why == "guarantee 4, weight 1; 14 of headroom; shared/cpu: 16 (16 on 1 node)"
    assert planned.pools[1].why == (
        "guarantee 0, weight 1, limit 2; 2 of headroom; shared/cpu: 16 (16 on 1 node)"
    )


@pytest.mark.parametrize(
    ("pool", "change", "written"),
    [
        (_ours(), "none", False),
        (_ours(occupied=9), "none", False),
        (_ours(slots=7), "update", True),
        (_ours(slots=7, occupied=7), "update", True),
        (_ours(slots=20, occupied=20), "update", True),
        (_ours(include_deferred=False), "update", True),
        (_ours(description=f"{MARK} by an older version"), "update", True),
        # The slot's shape changed: at once where nobody holds slots, else once they have drained.
        (_ours(description=DESCRIPTION.replace("4GiB", "2GiB")), "update", True),
        (_ours(description=DESCRIPTION.replace("4GiB", "2GiB"), occupied=1), "refused", False),
        # Somebody else's pool of our name.
        (_ours(description=""), "refused", False),
        (_ours(description=f"not {MARK}", slots=99, occupied=1), "refused", False),
    ],
)
def test_a_pool_that_is_there_is_changed_only_as_far_as_needed(
    pool: ExistingPool, change: str, written: bool
) -> None:
    planned = _plan(make_file(CPU_ONLY, make_tenant()), [pool])
    assert _rows(planned) == {"ray.acme": (pool.slots, 16, change)}
    assert [row.name for row in planned.changes] == ["ray.acme"] * written
    assert planned.pools[0].occupied == pool.occupied


def test_pools_of_others_are_not_in_the_plan_at_all() -> None:
    others = [ExistingPool("default_pool", 128), ExistingPool("ray.hers", 5, "by hand", occupied=2)]
    assert _rows(_plan(make_file(CPU_ONLY, make_tenant()), [*others, _ours()])) == {
        "ray.acme": (16, 16, "none")
    }


def test_a_foreign_pool_of_our_name_is_a_problem() -> None:
    assert _plan(make_file(CPU_ONLY, make_tenant()), [_ours(description="mine")]).problems == (
        "pool ray.acme: exists, but is not of our making, so it stays as it is; delete or rename it",
    )


def test_an_occupied_pool_whose_slot_changed_is_a_problem() -> None:
    pool = _ours(description=DESCRIPTION.replace("4GiB", "2GiB"), occupied=3)
    assert _plan(make_file(CPU_ONLY, make_tenant()), [pool]).problems == (
        "pool ray.acme: the slot is now 1 CPU + 4GiB, but tasks hold 3 slots of the old shape; "
        "it stays as it is until they have ended",
    )


@pytest.mark.parametrize(("guarantees", "is_problem"), [((8, 8), False), ((8, 9), True)])
def test_guarantees_above_the_live_cluster_are_a_problem(
    guarantees: tuple[int, int], is_problem: bool
) -> None:
    one, other = guarantees
    planned = _plan(make_file(CPU_ONLY, make_tenant(guarantee=one), make_tenant("globex", guarantee=other)))
    expected = (
        "cluster shared, group cpu: guarantees of 17 slots; the live cluster gives 16 (16 on 1 node)",
    )
    assert planned.problems == (expected if is_problem else ())
    assert sum(row.wanted for row in planned.pools) == 16


def test_guarantees_that_only_autoscaling_could_keep_are_a_problem_though_the_pools_have_them() -> None:
    scale = {"max": {"cpus": 64, "memory": "256GiB"}}
    cluster = make_cluster(groups=CPU_GROUP, autoscale=scale)
    planned = _plan(make_file(cluster, make_tenant(guarantee=20)))
    assert _rows(planned) == {"ray.acme": (None, 64, "create")}
    assert planned.problems == (
        "cluster shared, group cpu: guarantees of 20 slots; "
        "the live cluster gives 16 (16 on 1 node, up to 64 by autoscaling)",
    )


@pytest.mark.parametrize(("slots", "is_problem"), [(16, False), (17, True)])
def test_a_task_that_asks_for_more_than_its_pool_is_a_problem(slots: int, is_problem: bool) -> None:
    planned = _plan(make_file(CPU_ONLY, make_tenant()), [_ours()], ray__acme=(slots, "etl.load"))
    expected = (
        "pool ray.acme: task etl.load asks for 17 slots, the pool can have 16 at most: "
        "it would wait for ever",
    )
    assert planned.problems == (expected if is_problem else ())


@pytest.mark.parametrize(("slots", "is_problem"), [(8, False), (9, True)])
def test_a_task_that_its_pool_could_get_slots_for_is_no_problem_whatever_the_pool_has_now(
    slots: int, is_problem: bool
) -> None:
    file = make_file(CPU_ONLY, make_tenant(limit=8), make_tenant("globex"))
    globex = ExistingPool("ray.globex", 16, DESCRIPTION.replace("acme", "globex"), occupied=16)
    planned = _plan(file, [_ours(slots=0), globex], ray__acme=(slots, "etl.load"))
    assert _rows(planned)["ray.acme"] == (0, 0, "none")
    assert len(planned.problems) == is_problem
    assert all("asks for 9 slots, the pool can have 8 at most" in text for text in planned.problems)


def test_a_tenant_borrows_what_nobody_else_asks_for() -> None:
    file = make_file(CPU_ONLY, make_tenant(guarantee=4), make_tenant("globex", guarantee=4))
    pools = {pool.name: pool for pool in [_ours(slots=8, occupied=8)]}
    demand = {"ray.acme": Demand((2, 2, 2), 5.0)}
    planned = plan(file, {"shared": NODES[:1]}, pools, {}, demand)
    assert _rows(planned) == {"ray.acme": (8, 14, "update"), "ray.globex": (None, 2, "create")}
    assert [pool.why.partition("; shared")[0] for pool in planned.pools] == [
        "guarantee 4, weight 1; 3 wait for 6 slots, 6 free for that; 10 borrowed",
        "guarantee 4, weight 1; 2 of headroom",
    ]


def test_slots_of_jobs_that_airflow_does_not_count_are_nobodys() -> None:
    file = make_file(CPU_ONLY, make_tenant(), make_tenant("globex"))
    pools = {pool.name: pool for pool in [_ours(occupied=1)]}
    demand = {"ray.acme": Demand((9,)), "ray.globex": Demand((9,))}
    planned = plan(file, {"shared": NODES[:1]}, pools, {}, demand, {"ray.acme": 5})
    # 16 less the 6 in use: globex starts its task, and acme's pool shows what Airflow may count.
    assert _rows(planned) == {"ray.acme": (16, 1, "update"), "ray.globex": (None, 10, "create")}


def test_a_pool_that_stays_as_it_is_may_be_filled_at_any_moment() -> None:
    file = make_file(CPU_ONLY, make_tenant(), make_tenant("globex"))
    old = _ours(slots=10, occupied=1, description=DESCRIPTION.replace("4GiB", "2GiB"))
    assert _rows(_plan(file, [old]))["ray.globex"] == (None, 6, "create")


@pytest.mark.parametrize(
    ("occupied", "slots", "change"),
    [(0, 5, Change.DELETE), (0, 0, Change.DELETE), (2, 5, Change.UPDATE), (2, 0, Change.NONE)],
)
def test_a_leftover_is_closed_and_once_it_is_empty_deleted(occupied: int, slots: int, change: Change) -> None:
    left = ExistingPool("ray.gone", slots, f"{MARK} for tenant gone", occupied=occupied)
    planned = _plan(make_file(CPU_ONLY, make_tenant()), [_ours(), left])
    assert planned.pools[1:] == (
        PlannedPool(
            "ray.gone",
            slots,
            0,
            occupied,
            "no tenant of the file has it" + ("; tasks still hold slots" if occupied else ""),
            left.description,
            change,
        ),
    )


def test_what_a_leftover_still_holds_is_nobodys() -> None:
    left = _ours(name="ray.gone", slots=5, occupied=5, description=DESCRIPTION.replace("acme", "gone"))
    planned = _plan(make_file(CPU_ONLY, make_tenant(guarantee=16)), [left])
    assert _rows(planned) == {"ray.acme": (None, 11, "create"), "ray.gone": (5, 0, "update")}
    # A task may be as large as ever: what is held comes free.
    assert planned.pools[0].most == 16
    elsewhere = _ours(name="ray.gone", occupied=5, description=DESCRIPTION.replace("of shared", "of other"))
    assert _rows(_plan(make_file(CPU_ONLY, make_tenant()), [elsewhere]))["ray.acme"] == (None, 16, "create")


@pytest.mark.parametrize("limit", [{"gpu": 0}, 5])
def test_a_group_that_a_tenant_may_no_longer_use_leaves_its_pool_over(limit: Any) -> None:
    left = ExistingPool("ray.acme.gpu", 4, f"{MARK} for tenant acme, group gpu")
    rows = _rows(_plan(make_file(make_cluster(), make_tenant(limit=limit)), [left]))
    if limit == 5:
        # A number alone is about the first group; the other stays without limit.
        assert rows["ray.acme.gpu"] == (4, 4, "update")
    else:
        assert rows["ray.acme.gpu"] == (4, 0, "delete")


def test_a_limit_of_zero_in_the_first_group_is_a_pool_of_zero() -> None:
    assert _rows(_plan(make_file(CPU_ONLY, make_tenant(limit=0)))) == {"ray.acme": (None, 0, "create")}


def test_nothing_is_a_leftover_while_a_cluster_is_silent() -> None:
    far = make_tenant("far", cluster="other")
    file = make_file(CPU_ONLY, make_tenant(), far, other=CPU_ONLY)
    pools = [
        _ours(),
        ExistingPool("ray.far", 3, f"{MARK} for tenant far"),
        ExistingPool("ray.gone", 3, f"{MARK} for tenant gone"),
    ]
    assert _rows(_plan(file, pools)) == {"ray.acme": (16, 16, "none")}
    assert _rows(_plan(file, pools, {"shared": NODES[:1], "other": [make_node(2, 8)]})) == {
        "ray.acme": (16, 16, "none"),
        "ray.far": (3, 2, "update"),
        "ray.gone": (3, 0, "delete"),
    }


_NAMES = ["ray.acme", "ray.globex", "ray.acme.gpu", "ray.globex.gpu", "ray.gone", "default_pool"]
_pools = st.lists(
    st.builds(
        ExistingPool,
        name=st.sampled_from(_NAMES),
        slots=st.integers(0, 40),
        description=st.sampled_from(
            [
                "",
                "by hand",
                MARK,
                DESCRIPTION,
                DESCRIPTION.replace("4GiB", "2GiB"),
                DESCRIPTION.replace("acme", "gone"),
            ]
        ),
        include_deferred=st.booleans(),
        occupied=st.sampled_from([0, 0, 1, 5]),
    ),
    unique_by=lambda pool: pool.name,
)
_tenants = st.fixed_dictionaries(
    {"guarantee": st.integers(0, 12), "weight": st.sampled_from([0.5, 1, 3])},
    optional={
        "limit": st.sampled_from([12, 30, {"gpu": 0}, {"cpu": 12, "gpu": 1}]),
        "nodes": st.sampled_from([{"label": {"team": "acme"}}, {"resource": "acme_node"}]),
    },
)


@seeded
@given(_pools, st.lists(_tenants, min_size=1, max_size=2))
def test_a_plan_that_was_written_leaves_nothing_to_change(
    pools: list[ExistingPool], tenants: list[dict[str, Any]]
) -> None:
    file = make_file(
        make_cluster(), *(make_tenant(n, **t) for n, t in zip(("acme", "globex"), tenants, strict=False))
    )
    first = _plan(file, pools)
    after = _applied(first, pools)
    second = _plan(file, after)
    assert second.changes == ()
    assert second.problems == first.problems
    # ... and nobody else's pool has changed, and no pool that tasks hold slots of is gone.
    theirs = {pool for pool in pools if not pool.is_ours}
    assert theirs <= set(after)
    assert {pool.name for pool in pools if pool.occupied} <= {pool.name for pool in after}


def test_a_row_says_what_its_pool_could_have_at_most_and_with_whom_it_shares() -> None:
    nodes = [make_node(8, 32), make_node(8, 32)]
    mine = [make_node(4, 16, labels={"team": "initech"})]
    file = make_file(
        CPU_ONLY,
        make_tenant("acme", limit=6),
        make_tenant("globex"),
        make_tenant("initech", nodes={"label": {"team": "initech"}}),
    )
    rows = {row.name: row for row in plan(file, {"shared": nodes + mine}, {}, {}).pools}
    assert {name: (row.most, row.shares) for name, row in rows.items()} == {
        "ray.acme": (6, "shared/cpu"),
        "ray.globex": (16, "shared/cpu"),
        "ray.initech": (4, "shared/cpu with label team=initech"),
    }
