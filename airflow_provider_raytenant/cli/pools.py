"""``airflow raytenant pools``: what the pools should be, and making them so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_raytenant.cli.output import complain, console, one_clear_error, print_rows
from airflow_provider_raytenant.cli.tenants import read
from airflow_provider_raytenant.domain.pool_rows import PlannedPool
from airflow_provider_raytenant.pools.capacity import Clusters, read_clusters
from airflow_provider_raytenant.pools.sync import plan_pools, read_dags, refusals, sync_pools


@one_clear_error
def plan(args: Any) -> None:
    """Print the plan; exit code 1 where something cannot be as the file asks, or a cluster is silent."""
    _, file = read(args)
    clusters = read_clusters(file)
    planned = plan_pools(file, clusters.states, read_dags())
    print_rows([_row(pool) for pool in planned.pools], args.output, numbers=("now", "wanted", "held"))
    _end(clusters, planned.problems)


@one_clear_error
def sync(args: Any) -> None:
    """Write what the plan changes; exit code 1 where a cluster is silent or a pool had to be left."""
    _, file = read(args)
    clusters = read_clusters(file)
    make = plan_pools if args.dry_run else sync_pools
    planned = make(file, clusters.states, read_dags())
    rows = [_row(pool) for pool in planned.changes]
    if args.output == "table" and not rows:
        console().print(
            "Every pool that could be read is as it should be." if clusters.failures else "Nothing to change."
        )
    else:
        print_rows(rows, args.output, numbers=("now", "wanted", "held"))
        if args.output == "table" and args.dry_run:
            console().print("(dry run: nothing was written)")
    _end(clusters, refusals(planned))


def _row(pool: PlannedPool) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "now": pool.now,
        "wanted": pool.wanted,
        "held": pool.occupied,
        "change": pool.change.value,
        "why": pool.why,
    }


def _end(clusters: Clusters, problems: Sequence[str]) -> None:
    for name, failure in clusters.failures.items():
        complain(f"cluster {name}: {failure}; its pools stay as they are")
    for problem in problems:
        complain(problem)
    if clusters.failures or problems:
        raise SystemExit(1)
