"""``airflow raytenant pause`` and ``resume``: nothing new starts, and what runs ends; for upgrades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_raytenant.cli.output import complain, console, one_clear_error
from airflow_provider_raytenant.cli.tenants import read
from airflow_provider_raytenant.database.pools import write_pools
from airflow_provider_raytenant.domain import pool_pauses
from airflow_provider_raytenant.domain.pausing import Target, find_target, pauses_in
from airflow_provider_raytenant.domain.pool_rows import Change, PoolPlan
from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.domain.wording import count
from airflow_provider_raytenant.exceptions import RequestError
from airflow_provider_raytenant.pools.capacity import read_clusters
from airflow_provider_raytenant.pools.sync import read_dags, refusals, sync_pools


@one_clear_error
def pause(args: Any) -> None:
    """Close the pools at once, and say what still runs; exit code 1 where a pool is not ours to close."""
    _, file = read(args)
    target = _target(file, args.name)
    plan = write_pools(lambda now: pool_pauses.pause(file, target, now))
    closed = [row for row in plan.pools if row.change is not Change.REFUSED]
    held = sum(row.occupied for row in closed)
    running = (
        f"Tasks hold {count(held, 'slot')} and go on to their end (`airflow raytenant jobs list`)."
        if held
        else "No task holds a slot."
    )
    for text in (
        f"{_named(target)} is paused: {count(len(closed), 'pool')} closed.",
        running,
        f"`airflow raytenant resume {args.name}` ends the pause.",
    ):
        console().print(text)
    _complain(plan.problems)


@one_clear_error
def resume(args: Any) -> None:
    """Open the pools again, with their sizes where the cluster answers; exit code 1 where it does not."""
    _, file = read(args)
    target = _target(file, args.name)
    plan = write_pools(lambda now: pool_pauses.resume(target, now))
    if not plan.changes:
        console().print(f"{_named(target)} was not paused.")
        return
    console().print(f"{_named(target)} is resumed: {count(len(plan.changes), 'pool')} open.")
    _sync(file, target, plan)


def _sync(file: TenantFile, target: Target, resumed: PoolPlan) -> None:
    clusters = read_clusters(file)
    planned = sync_pools(file, clusters.states, read_dags())
    names = {row.name for row in resumed.pools}
    rows = [row for row in planned.pools if row.name in names]
    for row in rows:
        pauses = " and ".join(map(str, sorted(pauses_in(row.description))))
        console().print(f"{row.name}: " + (f"paused with {pauses}" if pauses else f"{row.wanted} slots"))
    own = {target.name} if target.kind == "cluster" else {file.tenants[target.name].cluster}
    silent = [f"cluster {name}: {text}" for name, text in clusters.failures.items() if name in own]
    _complain(
        [*(f"{text}; its pools get their slots once it answers" for text in silent), *refusals(planned)]
    )


def _target(file: TenantFile, text: str) -> Target:
    try:
        return find_target(file, text)
    except RequestError as error:
        raise RequestError(f"CLUSTER|TENANT: {error}") from None


def _named(target: Target) -> str:
    return f"{target.kind.capitalize()} {target.name}"


def _complain(problems: Sequence[str]) -> None:
    for problem in problems:
        complain(problem)
    if problems:
        raise SystemExit(1)
