"""``airflow raytenant jobs``: the Ray jobs of this deployment and the tasks they belong to."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from airflow_provider_raytenant.cli.job_views import details, print_jobs, row
from airflow_provider_raytenant.cli.output import complain, console, one_clear_error, print_rows
from airflow_provider_raytenant.cli.tenants import read
from airflow_provider_raytenant.control.clusters import (
    Answers,
    ClusterJobs,
    Swept,
    client_of,
    read_jobs,
)
from airflow_provider_raytenant.control.clusters import sweep as sweep_clusters
from airflow_provider_raytenant.domain.durations import format_duration, parse_duration
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.sweep import SHORTEST_ID, OwnJob, by_short_id, short_id, task_state
from airflow_provider_raytenant.exceptions import JobNotFoundError, RayTenantError, RequestError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.stopping import stop_job

STOP_PATIENCE: Final = 60.0
"""Seconds to see a job end that a person stops."""

WAITING: Final = 5.0
"""Seconds after which a job that waits in Ray counts as stopped: without its ticket it can start nothing."""


@one_clear_error
def list_jobs(args: Any) -> None:
    """Live jobs by tenant, with ``--all`` ended ones too; exit code 1 where a cluster is silent."""
    _, file = read(args)
    if args.tenant is not None and args.tenant not in file.tenants:
        raise RequestError(f"--tenant: found {args.tenant!r}; allowed: {', '.join(sorted(file.tenants))}")
    answers = asyncio.run(read_jobs(file, ended=args.all))
    now = time.time()
    rows = [
        row(job, cluster, now)
        for cluster in answers.found.values()
        for job in cluster.own
        if (args.all or job.live) and args.tenant in (None, job.identity.tenant)
    ]
    rows.sort(key=lambda r: (r["tenant"], r["submitted"] or "", r["submission_id"]))
    if args.output != "table":
        print_rows(rows, args.output)
    elif rows:
        print_jobs(rows)
    elif answers.found:
        console().print("No job." if args.all else "No live job.")
    _end(answers)


@one_clear_error
def show(args: Any) -> None:
    """Everything about one job."""
    _, file = read(args)
    answers = asyncio.run(read_jobs(file, ended=True))
    cluster, job = _the_one(answers, args.submission_id, file.deployment)
    details(job, cluster, time.time(), args.output)


@one_clear_error
def stop(args: Any) -> None:
    """Stop jobs and see them end; exit code 1 where one does not."""
    _, file = read(args)
    answers = asyncio.run(read_jobs(file, ended=False))
    # All of them are looked for before the first is stopped.
    wanted = {}
    for text in args.submission_ids:
        cluster, job = _the_one(answers, text, file.deployment)
        wanted[job.submission_id] = (cluster, job)

    async def stop_all() -> list[bool]:
        return list(await asyncio.gather(*(_stop(cluster, job) for cluster, job in wanted.values())))

    if not all(asyncio.run(stop_all())):
        raise SystemExit(1)


@one_clear_error
def sweep(args: Any) -> None:
    """Stop orphans, delete old records; exit code 1 where a cluster is silent or an orphan still lives."""
    older_than = duration("--older-than", args.older_than)
    _, file = read(args)
    answers = asyncio.run(sweep_clusters(file, older_than, dry_run=args.dry_run, say=lambda text: None))
    rows = [r for name, swept in answers.found.items() for r in _sweep_rows(name, swept, args.dry_run)]
    if args.output != "table":
        print_rows(rows, args.output)
    elif rows:
        print_rows([{key: r[key] for key in ("job", "action", "why", "task")} for r in rows], "table")
        if args.dry_run:
            console().print("(dry run: nothing was done)")
    elif answers.found:
        console().print(f"No orphan, and no record older than {format_duration(older_than)}.")
    _end(answers)
    if not all(ended for swept in answers.found.values() for ended in swept.ended.values()):
        raise SystemExit(1)


def duration(option: str, text: str) -> int:
    """The seconds of an option.

    :raises RequestError: saying what was found and what is allowed.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise RequestError(f"{option}: {error}") from None


def _the_one(answers: Answers[ClusterJobs], text: str, deployment: str) -> tuple[ClusterJobs, OwnJob]:
    """The job that a person means.

    :raises RequestError: there is none, there are several, or it is not of this deployment.
    """
    found = {
        job.submission_id: (cluster, job)
        for cluster in answers.found.values()
        for job in by_short_id(cluster.own, text)
    }
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise RequestError(f"found {len(found)} jobs that begin with {text!r}: {', '.join(sorted(found))}")
    for cluster in answers.found.values():
        if text in cluster.others:
            raise RequestError(
                f"job {text} of cluster {cluster.cluster} is not of deployment {deployment}: "
                "it stays as it is; allowed: the jobs of `airflow raytenant jobs list --all`"
            )
    silent = "".join(f"; cluster {name}: {why}" for name, why in answers.failures.items())
    raise RequestError(
        f"found no job {text!r}; allowed: a submission id, or {SHORTEST_ID} and more characters of an id "
        f"of `airflow raytenant jobs list --all`{silent}"
    )


async def _stop(cluster: ClusterJobs, job: OwnJob) -> bool:
    name = job.submission_id
    if not job.live:
        console().print(f"Job {name} has ended already: {job.info.status.value}.", soft_wrap=True)
        return True
    try:
        async with client_of(cluster.endpoint) as client:
            if await stop_job(client, name, patience=STOP_PATIENCE, waiting=WAITING):
                waits = await _waits(client, name)
                end = "can start nothing any more; Ray forgets it in a while" if waits else "has ended"
                state = task_state(job, cluster.tasks)
                console().print(f"Job {name} {end}; its task {job.task} was {state}.", soft_wrap=True)
                return True
        complain(f"job {name} was told to stop, but still lives after {STOP_PATIENCE:g} s")
    except RayTenantError as error:
        complain(f"job {name}: {error}")
    return False


async def _waits(client: RayClient, name: str) -> bool:
    try:
        return (await client.job(name)).status is JobStatus.PENDING
    except JobNotFoundError:
        return False


def _sweep_rows(cluster: str, swept: Swept, dry_run: bool) -> list[dict[str, Any]]:
    rows = []
    for job in swept.orphans:
        ended = swept.ended.get(job.submission_id)
        done = "would stop" if dry_run else "stopped" if ended else "still lives"
        rows.append(_sweep_row(cluster, job, done, f"task {task_state(job, swept.tasks)}"))
    now = time.time()
    for job in swept.records:
        age = format_duration(now - (job.info.end_time or job.info.start_time or 0) / 1000)
        did = "would delete" if dry_run else "deleted"
        rows.append(_sweep_row(cluster, job, did, f"{job.info.status.value} {age} ago"))
    return rows


def _sweep_row(cluster: str, job: OwnJob, action: str, why: str) -> dict[str, Any]:
    return {
        "job": short_id(job),
        "action": action,
        "why": why,
        "task": job.task,
        "cluster": cluster,
        "submission_id": job.submission_id,
    }


def _end(answers: Answers[Any]) -> None:
    for name, failure in answers.failures.items():
        complain(f"cluster {name}: {failure}")
    if answers.failures:
        raise SystemExit(1)
