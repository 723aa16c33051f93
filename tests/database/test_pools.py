"""Pools planned and written in real tables of Airflow's, in SQLite and in PostgreSQL."""

from __future__ import annotations

import pytest
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from airflow_provider_raytenant.database import pools as pools_module
from airflow_provider_raytenant.database.pools import read_pools
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_rows import ExistingPool, PoolsNow
from airflow_provider_raytenant.pools.sync import ClusterState, DagFacts, sync_pools
from tests.database.tables import Tables
from tests.domain.helpers import make_cluster, make_file, make_node, make_tenant

FILE = make_file(
    make_cluster(groups={"cpu": {"slot": {"cpus": 1, "memory": "4GiB"}}}),
    make_tenant("acme", guarantee=4),
    make_tenant("globex", guarantee=4),
)
CLUSTERS = {"shared": ClusterState([make_node(16, 64)])}


def slots(tables: Tables) -> dict[str, int]:
    with Session(tables.engine) as session:
        return {str(pool.pool): pool.slots for pool in session.scalars(select(Pool))}


def start(tables: Tables, pool: str) -> None:
    """Let everything that waits for a pool run."""
    with tables.engine.begin() as connection:
        waiting = (TaskInstance.pool == pool, TaskInstance.state == "scheduled")
        connection.execute(update(TaskInstance).where(*waiting).values(state="running"))


def test_a_tenant_borrows_and_gives_back_as_its_tasks_end(tables: Tables) -> None:
    sync_pools(FILE, CLUSTERS, DagFacts())
    assert slots(tables) == {"ray.acme": 8, "ray.globex": 8, "default_pool": 9}
    tables.tasks(2, 2, 2, 2, 2, 2, 2)
    sync_pools(FILE, CLUSTERS, DagFacts())
    assert slots(tables) == {"ray.acme": 14, "ray.globex": 2, "default_pool": 9}
    start(tables, "ray.acme")
    tables.tasks(1, 1, 1, 1, 1, 1, pool="ray.globex", dag="other", scheduled_dttm=None)
    planned = sync_pools(FILE, CLUSTERS, DagFacts())
    # Two fit at once, the other four want what acme has borrowed.
    assert slots(tables) == {"ray.acme": 10, "ray.globex": 2, "default_pool": 9}
    assert [pool.why.partition("; shared")[0] for pool in planned.pools] == [
        "guarantee 4, weight 1; 6 borrowed; drains 4",
        "guarantee 4, weight 1; 6 wait for 6 slots, 2 free for that",
    ]


def test_jobs_that_airflow_does_not_count_keep_their_slots(tables: Tables) -> None:
    states = {"shared": ClusterState([make_node(16, 64)], {"ray.acme": 3})}
    sync_pools(FILE, states, DagFacts())
    assert slots(tables) == {"ray.acme": 5, "ray.globex": 8, "default_pool": 9}


def test_a_sync_that_changes_nothing_takes_no_lock(
    tables: Tables, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.tasks(2, 2)
    sync_pools(FILE, CLUSTERS, DagFacts())
    monkeypatch.setattr(pools_module, "_locked_pools", None)
    statements.clear()
    assert sync_pools(FILE, CLUSTERS, DagFacts()).changes == ()
    assert all(statement.startswith("SELECT") for statement in statements)
    assert not any("FOR UPDATE" in statement for statement in statements)


def test_what_counts_is_what_was_read_under_the_locks(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = PoolsNow({"ray.acme": ExistingPool("ray.acme", 1)}, {"ray.acme": Demand((16,))})
    monkeypatch.setattr("airflow_provider_raytenant.pools.sync.read_pools", lambda *_: stale)
    tables.tasks(2, state="running", pool="ray.globex")
    planned = sync_pools(FILE, CLUSTERS, DagFacts())
    assert {pool.name: (pool.wanted, pool.occupied) for pool in planned.pools} == {
        "ray.acme": (8, 0),
        "ray.globex": (8, 2),
    }


def test_two_syncs_at_once_end_with_the_same(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_pools(FILE, CLUSTERS, DagFacts())
    tables.tasks(2, 2, 2, 2, 2)
    before = read_pools()
    assert sync_pools(FILE, CLUSTERS, DagFacts()).changes
    # The other looked before this one wrote: it plans anew under the locks, and finds nothing to do.
    monkeypatch.setattr("airflow_provider_raytenant.pools.sync.read_pools", lambda *_: before)
    assert sync_pools(FILE, CLUSTERS, DagFacts()).changes == ()
