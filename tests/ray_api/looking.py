"""Many looks at once, and what they cost the dashboard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.ray_api.poller import JobPoller
from tests.fakes.ray_server import FakeRay


def add_jobs(fake: FakeRay, count: int, *, ended: int = 0) -> list[str]:
    """So many running jobs, whose names are returned, and old records beside them."""
    for number in range(ended):
        fake.add_job(f"old-{number}").end()
    names = [f"j{number}" for number in range(count)]
    for name in names:
        fake.add_job(name).run()
    return names


async def look_at(
    poller: JobPoller, names: Iterable[str], *, earliest: float = 0.0, latest: float = 0.0
) -> list[JobInfo | BaseException]:
    """What each look gets, within a bound."""
    looks = [poller.look(name, earliest=earliest, latest=latest) for name in names]
    return await asyncio.wait_for(asyncio.gather(*looks, return_exceptions=True), 20)


def names_of(answers: Iterable[JobInfo | BaseException]) -> list[str]:
    return [answer.submission_id if isinstance(answer, JobInfo) else repr(answer) for answer in answers]


def asked(fake: FakeRay) -> Counter[str]:
    """The requests since the last call of this: ``list``, ``one`` (single reads), and others as they came."""
    kinds = Counter(
        "list"
        if str(seen) == "GET /api/jobs/"
        else "one"
        if str(seen).startswith("GET /api/jobs/")
        else str(seen)
        for seen in fake.seen
    )
    fake.seen.clear()
    return kinds
