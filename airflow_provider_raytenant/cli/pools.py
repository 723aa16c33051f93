"""``airflow raytenant pools``: what the pools should be, and making them so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from airflow_provider_raytenant.cli.output import complain, console, one_clear_error, print_rows
from airflow_provider_raytenant.cli.tenants import read
from airflow_provider_raytenant.database.heartbeats import SYNC, note, read_heartbeats
from airflow_provider_raytenant.domain.durations import format_duration
from airflow_provider_raytenant.domain.heartbeat import Heartbeat
from airflow_provider_raytenant.domain.pool_rows import Change, PlannedPool, PoolPlan
from airflow_provider_raytenant.domain.wording import count
from airflow_provider_raytenant.pools.capacity import Clusters, read_clusters
from airflow_provider_raytenant.pools.sync import plan_pools, read_dags, refusals, sync_pools

NUMBERS: Final = ("now", "wanted", "held")


@one_clear_error
def plan(args: Any) -> None:
    """Print the plan; exit code 1 where something cannot be as the file asks, or a cluster is silent."""
    _, file = read(args)
    clusters = read_clusters(file)
    planned = plan_pools(file, clusters.states, read_dags())
    print_rows([_row(pool, args.output) for pool in planned.pools], args.output, numbers=NUMBERS)
    if args.output == "table":
        console().print("\n" + _health(planned, read_heartbeats(SYNC)))
    _end(clusters, planned.problems)


@one_clear_error
def sync(args: Any) -> None:
    """Write what the plan changes; exit code 1 where a cluster is silent or a pool had to be left."""
    _, file = read(args)
    clusters = read_clusters(file)
    make = plan_pools if args.dry_run else sync_pools
    planned = make(file, clusters.states, read_dags())
    if not args.dry_run:
        note(SYNC)
    rows = [_row(pool, args.output) for pool in planned.changes]
    if args.output == "table" and not rows:
        console().print(
            "Every pool that could be read is as it should be." if clusters.failures else "Nothing to change."
        )
    else:
        print_rows(rows, args.output, numbers=NUMBERS)
        if args.output == "table" and args.dry_run:
            console().print("(dry run: nothing was written)")
    _end(clusters, refusals(planned))


def _row(pool: PlannedPool, output: str) -> dict[str, Any]:
    row = {
        "pool": pool.name,
        "now": pool.now,
        "wanted": pool.wanted,
        "held": pool.occupied,
        "change": pool.change.value,
        "why": pool.why,
    }
    # A table of 80 columns has no room for more, and `why` says the same in words.
    return row if output == "table" else {**row, "waiting": pool.waiting, "most": pool.most}


def _health(planned: PoolPlan, syncs: Sequence[Heartbeat]) -> str:
    """When the pools were last right, what drains, and what asks for more than there is."""
    last = min(syncs, key=lambda sync: sync.age, default=None)
    parts = ["last sync: none within a week"]
    if last is not None:
        parts = [f"last sync: {format_duration(last.age)} ago on {last.hostname}"]
    drains = [pool.drains for pool in planned.pools if pool.drains]
    if drains:
        parts.append(f"{count(len(drains), 'pool')} over-occupied, {count(sum(drains), 'slot')} to drain")
    capped = sum(pool.capped for pool in planned.pools)
    if capped:
        parts.append(f"{count(capped, 'waiting task')} larger than the pool can ever be")
    refused = sum(pool.change is Change.REFUSED for pool in planned.pools)
    if refused:
        parts.append(f"{count(refused, 'pool')} refused")
    return "; ".join(parts)


def _end(clusters: Clusters, problems: Sequence[str]) -> None:
    for name, failure in clusters.failures.items():
        complain(f"cluster {name}: {failure}; its pools stay as they are")
    for problem in problems:
        complain(problem)
    if clusters.failures or problems:
        raise SystemExit(1)
