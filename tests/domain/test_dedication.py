"""Nodes of a tenant's own: who counts them, and where jobs go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_provider_raytenant.domain.capacity import Node, group_of_node
from airflow_provider_raytenant.domain.dedication import (
    TOKEN_AMOUNT,
    distinct,
    driver_selector,
    misfit_of,
    nodes_of,
)
from airflow_provider_raytenant.domain.job_spec import place
from airflow_provider_raytenant.domain.labels import matches
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.pool_rows import ExistingPool, PoolPlan
from airflow_provider_raytenant.domain.resources import Resources, Workers, whole_slots_in
from airflow_provider_raytenant.domain.tenants import DedicatedNodes, TenantFile
from airflow_provider_raytenant.exceptions import PolicyError
from tests.domain.helpers import make_cluster, make_file, make_node, make_tenant, seeded

CPU_ONLY = make_cluster(groups={"cpu": {"slot": {"cpus": 1, "memory": "4GiB"}}})
ACME = {"label": {"team": "acme"}}
GLOBEX = {"label": {"team": "globex"}}
FAST = {"resource": "fast_disk"}
COMMON_NODE = make_node(16, 64)
ACME_NODE = make_node(8, 32, labels={"team": "acme"})
FAST_NODE = make_node(4, 16, fast_disk=1)


def own(values: dict[str, Any]) -> DedicatedNodes:
    return DedicatedNodes.model_validate(values)


def sizes(planned: PoolPlan) -> dict[str, int]:
    return {pool.name: pool.wanted for pool in planned.pools}


def planned(file: TenantFile, *nodes: Node, requests: dict[str, tuple[int, str]] | None = None) -> PoolPlan:
    return plan(file, {"shared": nodes}, {}, requests or {})


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"label": {}},
        {"label": {"team": "acme", "zone": "1"}},
        {"label": {"team": "acme"}, "resource": "x"},
        {"label": {"team": "!acme"}},
        {"label": {"team": "in(a,b)"}},
        {"label": {"": "a"}},
        {"resource": " "},
        {"resource": "CPU"},
        {"labels": {"team": "acme"}},
        {"autoscale": {"max": {"cpus": 1}}},
    ],
)
def test_nodes_are_told_by_one_label_or_by_one_resource(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        own(values)


def test_a_tenants_own_nodes_count_for_it_alone() -> None:
    file = make_file(
        CPU_ONLY,
        make_tenant("acme", nodes=ACME),
        make_tenant("globex", guarantee=3),
        make_tenant("initech", nodes=FAST),
        make_tenant("umbrella"),
    )
    found = planned(file, COMMON_NODE, ACME_NODE, ACME_NODE, FAST_NODE)
    assert sizes(found) == {"ray.globex": 10, "ray.umbrella": 6, "ray.acme": 16, "ray.initech": 4}
    assert found.problems == ()
    why = {pool.name: pool.why for pool in found.pools}
    assert why["ray.acme"] == (
        "guarantee 0, weight 1; 16 of headroom; shared/cpu: 16 (16 on 2 nodes) with label team=acme"
    )
    assert why["ray.globex"] == "guarantee 3, weight 1; 10 of headroom; shared/cpu: 16 (16 on 1 node)"


def test_tenants_that_name_the_same_nodes_share_them() -> None:
    file = make_file(
        CPU_ONLY,
        make_tenant("acme", nodes=ACME, guarantee=6),
        make_tenant("partner", nodes=ACME),
        make_tenant("globex"),
    )
    assert sizes(planned(file, COMMON_NODE, ACME_NODE)) == {
        "ray.globex": 16,
        "ray.acme": 7,
        "ray.partner": 1,
    }


def test_a_node_that_two_claim_counts_once_for_the_first() -> None:
    both = make_node(8, 32, labels={"team": "acme"}, fast_disk=1)
    for order in (("acme", "initech"), ("initech", "acme")):
        tenants = {
            "acme": make_tenant("acme", nodes=ACME),
            "initech": make_tenant("initech", nodes=FAST),
        }
        found = sizes(planned(make_file(CPU_ONLY, *(tenants[name] for name in order)), both))
        assert found == {f"ray.{order[0]}": 8, f"ray.{order[1]}": 0}


def test_reserve_and_growth_of_the_cluster_are_those_of_the_common_nodes() -> None:
    cluster = make_cluster(
        groups={"cpu": {"slot": {"cpus": 1, "memory": "4GiB"}}},
        reserve={"cpus": 6},
        autoscale={"max": {"cpus": 100, "memory": "400GiB"}},
    )
    file = make_file(cluster, make_tenant("acme", nodes=ACME), make_tenant("globex"))
    assert sizes(planned(file, ACME_NODE)) == {"ray.globex": 94, "ray.acme": 8}
    grows = {**ACME, "autoscale": {"max": {"cpus": 20, "memory": "80GiB"}}}
    file = make_file(cluster, make_tenant("acme", nodes=grows), make_tenant("globex"))
    found = planned(file)
    assert sizes(found) == {"ray.globex": 94, "ray.acme": 20}
    assert found.problems == ()


def test_nodes_that_are_not_there_are_one_clear_line() -> None:
    file = make_file(CPU_ONLY, make_tenant("acme", nodes=ACME, guarantee=4), make_tenant("globex"))
    found = planned(file, COMMON_NODE, requests={"ray.acme": (2, "etl.load")})
    assert found.problems == (
        "cluster shared: no alive node has label team=acme, which tenant acme has for its own: "
        "its pools have no slots and its tasks wait until one joins",
    )
    assert sizes(found) == {"ray.globex": 16, "ray.acme": 0}


def test_a_guarantee_above_its_own_nodes_is_a_problem_though_the_cluster_has_more() -> None:
    file = make_file(CPU_ONLY, make_tenant("acme", nodes=ACME, guarantee=9), make_tenant("globex"))
    assert planned(file, COMMON_NODE, ACME_NODE).problems == (
        "cluster shared, group cpu: guarantees of 9 slots; "
        "the live nodes with label team=acme give 8 (8 on 1 node)",
    )


def test_another_cluster_is_another_tenants_world() -> None:
    far = make_cluster(groups={"cpu": {"slot": {"cpus": 2, "memory": "8GiB"}}}, ray_conn_id="far")
    file = make_file(CPU_ONLY, make_tenant("acme", cluster="far"), make_tenant("globex", nodes=ACME), far=far)
    nodes = {"shared": [COMMON_NODE, ACME_NODE], "far": [make_node(6, 24, labels={"team": "acme"})]}
    assert sizes(plan(file, nodes, {}, {})) == {"ray.globex": 8, "ray.acme": 3}


@pytest.mark.parametrize(
    ("mine", "task", "selector"),
    [
        (None, None, {"team": "!in(acme,globex)"}),
        (None, {"zone": "a"}, {"team": "!in(acme,globex)", "zone": "a"}),
        (None, {"team": "other"}, {"team": "other"}),
        (None, {"team": "in(acme,other)"}, {"team": "other"}),
        (None, {"team": "!x"}, {"team": "!in(acme,globex,x)"}),
        (ACME, None, {"team": "acme"}),
        (ACME, {"team": "acme"}, {"team": "acme"}),
        (ACME, {"team": "in(acme,globex)", "zone": "!b"}, {"team": "acme", "zone": "!b"}),
        (GLOBEX, None, {"team": "globex"}),
        (FAST, None, {"team": "!in(acme,globex)"}),
    ],
)
def test_a_driver_goes_to_its_tenants_nodes_and_to_no_other_tenants(
    mine: dict[str, Any] | None, task: dict[str, str] | None, selector: dict[str, str]
) -> None:
    sets = [own(ACME), own(GLOBEX), own(FAST)]
    assert driver_selector("acme", own(mine) if mine else None, sets, task) == selector


@pytest.mark.parametrize(
    ("mine", "task", "allowed"),
    [
        (ACME, {"team": "globex"}, "allowed for tenant x: the tenant's own nodes, label team=acme (leave"),
        (ACME, {"team": "!acme"}, "the tenant's own nodes"),
        (None, {"team": "acme"}, "allowed for tenant x: nodes that are not dedicated to another tenant"),
        (None, {"team": "in(acme, globex)"}, "not dedicated to another"),
    ],
)
def test_a_selector_that_leads_elsewhere_is_one_clear_error(
    mine: dict[str, Any] | None, task: dict[str, str], allowed: str
) -> None:
    with pytest.raises(PolicyError) as error:
        driver_selector("x", own(mine) if mine else None, [own(ACME), own(GLOBEX)], task)
    assert str(error.value).startswith(f"label_selector: found {task!r}, and no label team is both ")
    assert allowed in str(error.value)
    assert error.value.details["rule"] == "nodes"


def test_a_request_carries_label_or_resource_and_tells_the_job() -> None:
    sets = [own(ACME), own(FAST)]
    acme = place(
        make_tenant("acme", nodes=ACME), CPU_ONLY, Resources(1), Workers(2), {"zone": "a"}, dedicated=sets
    )
    assert (acme.selector, acme.slots) == ({"team": "acme", "zone": "a"}, 3)
    assert acme.task_options == {"label_selector": {"team": "acme"}}
    fast = place(make_tenant("initech", nodes=FAST), CPU_ONLY, Resources(1), dedicated=sets)
    assert fast.driver == Resources(1, custom={"fast_disk": TOKEN_AMOUNT})
    assert fast.slots == 1
    assert fast.task_options == {
        "label_selector": {"team": "!acme"},
        "resources": {"fast_disk": TOKEN_AMOUNT},
    }
    asks = Resources(1, custom={"fast_disk": 1.0})
    assert place(make_tenant("initech", nodes=FAST), CPU_ONLY, asks, dedicated=sets).driver == asks
    plain = place(make_tenant("globex"), CPU_ONLY, Resources(1))
    assert (plain.selector, plain.task_options) == ({}, {})


def test_a_group_is_chosen_by_the_tenants_own_label_and_not_by_what_it_keeps_off() -> None:
    slot = {"cpus": 1, "memory": "4GiB"}
    cluster = make_cluster(groups={"cpu": {"slot": slot}, "big": {"slot": slot, "labels": {"team": "acme"}}})
    sets = [own(ACME), own(GLOBEX)]
    assert place(make_tenant(nodes=ACME), cluster, Resources(1), dedicated=sets).group == "big"
    assert place(make_tenant(nodes=GLOBEX), cluster, Resources(1), dedicated=sets).group == "cpu"
    assert place(make_tenant(), cluster, Resources(1), dedicated=sets[1:]).group == "cpu"


@pytest.mark.parametrize(
    ("mine", "need", "reason"),
    [
        (ACME, Resources(8), None),
        (
            ACME,
            Resources(9),
            "asks for 9 CPU; the largest alive node has 8 CPU + 32GiB"
            " among the tenant's own nodes (label team=acme)",
        ),
        (None, Resources(17), "asks for 17 CPU; the largest alive node has 16 CPU + 64GiB"),
        (
            GLOBEX,
            Resources(1),
            "asks for 1 CPU; no node is alive among the tenant's own nodes (label team=globex)",
        ),
    ],
)
def test_a_job_has_to_fit_a_node_that_it_may_use(
    mine: dict[str, Any] | None, need: Resources, reason: str | None
) -> None:
    nodes = [COMMON_NODE, ACME_NODE, make_node(99, 999, labels={"team": "umbrella"})]
    sets = [own(ACME), own(GLOBEX), own({"label": {"team": "umbrella"}})]
    mine_or_common = own(mine) if mine else None
    selector = driver_selector("x", mine_or_common, sets, None)
    assert misfit_of(mine_or_common, sets, need, selector, CPU_ONLY, nodes) == reason


_SETS = [None, ACME, GLOBEX, FAST, {"label": {"zone": "1"}}]
_nodes = st.lists(
    st.builds(
        lambda cpus, gib, team, zone, fast, gpus: make_node(
            cpus,
            gib,
            gpus,
            {k: v for k, v in (("team", team), ("zone", zone)) if v},
            **({"fast_disk": 1.0} if fast else {}),
        ),
        st.integers(0, 12),
        st.integers(0, 80),
        st.sampled_from(["", "acme", "globex", "other"]),
        st.sampled_from(["", "1"]),
        st.booleans(),
        st.sampled_from([0, 0, 2]),
    ),
    max_size=8,
)
_tenants = st.lists(
    st.fixed_dictionaries(
        {
            "nodes": st.sampled_from(_SETS),
            "guarantee": st.integers(0, 6),
            "weight": st.sampled_from([0.5, 1, 3]),
        },
        optional={"limit": st.sampled_from([6, 30, {"gpu": 0}])},
    ),
    min_size=1,
    max_size=5,
)
_held = st.dictionaries(st.sampled_from([f"ray.t{n}" for n in range(5)]), st.integers(0, 9))


@seeded
@given(_nodes, _tenants, _held)
def test_the_pools_of_a_set_never_exceed_its_nodes_nor_all_pools_the_cluster(
    nodes: list[Node], tenants: list[dict[str, Any]], held: dict[str, int]
) -> None:
    cluster = make_cluster()
    file = make_file(cluster, *(make_tenant(f"t{n}", **values) for n, values in enumerate(tenants)))
    existing = {
        name: ExistingPool(name, occupied, "Made by raytenant for it", occupied=occupied)
        for name, occupied in held.items()
    }
    wanted = sizes(plan(file, {"shared": nodes}, existing, {}))
    sets = distinct(tenant.nodes for tenant in file.tenants.values())
    parts = {str(one): nodes_of(one, sets, nodes) for one in [None, *sets]}
    # Every node belongs to one set.
    assert sorted(id(node) for part in parts.values() for node in part) == sorted(map(id, nodes))
    for group, values in cluster.groups.items():
        for name, part in parts.items():
            room = sum(
                whole_slots_in(node.total, values.slot.resources)
                for node in part
                if group_of_node(cluster, node) == group
            )
            mine = [tenant for tenant in file.tenants.values() if str(tenant.nodes) == name]
            pools = [tenant.pool(group, "cpu") for tenant in mine]
            assert sum(wanted.get(pool, 0) for pool in pools) <= room
    # A tenant's own nodes change nothing for the others.
    lonely = plan(file, {"shared": [node for node in nodes if node in parts["None"]]}, existing, {})
    for tenant in file.tenants.values():
        if tenant.nodes is None:
            pool = tenant.pool("cpu", "cpu")
            assert sizes(lonely)[pool] == wanted[pool]


@seeded
@given(_nodes, st.lists(st.sampled_from(_SETS), min_size=1, max_size=5))
def test_a_driver_fits_only_nodes_of_its_own_set(
    nodes: list[Node], kinds: list[dict[str, Any] | None]
) -> None:
    sets = distinct(own(kind) if kind else None for kind in kinds)
    by_label = [one for one in sets if one.label is not None]
    for kind in kinds:
        mine = own(kind) if kind else None
        if mine is not None and mine.label is None:
            continue
        selector = driver_selector("x", mine, by_label, None)
        allowed = [node for node in nodes if matches(selector, node.labels)]
        assert allowed == nodes_of(mine, by_label, nodes)
