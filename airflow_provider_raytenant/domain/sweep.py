"""Which Ray jobs are ours, which of the live ones nobody wants any more, which records may go.

Pure. The order of reading makes it safe: Ray first, then Airflow's database. A try's job is submitted only
after the try's state says so, and a try that has ended never comes back; so a job that was live before its
try was seen to be over is an orphan, however long ago either was read.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.job_spec import ADOPTABLE_KEY, METADATA_PREFIX, TryIdentity

TaskKey = tuple[str, str, str, int]
"""dag_id, run_id, task_id, map_index: what all tries of a task share."""

_TRY_IS_ACTIVE: Final = frozenset({"queued", "running", "deferred"})
"""States of a task instance in which somebody follows the job of this very try. Not *scheduled*: that
comes after the trigger has handed the end over to a worker, and then nobody follows the job any more."""

_TRY_IS_OVER: Final = frozenset({None, "success", "failed", "skipped", "upstream_failed", "removed"})

SHORTEST_ID: Final = 4
SHORT_ID: Final = 8
"""Characters of a submission id's hash: as few as a person may type, and as many as are shown."""

_LONGEST_ID: Final = 250
"""Characters of Airflow's dag_id, task_id and run_id."""

_NEXT_TRY_DECIDES: Final = frozenset({"up_for_retry", "scheduled", "queued", "running"})
"""States of a task in which the ``execute`` of its next try is to come, or under way: it adopts an
adoptable job, or stops it. Not *restarting*: that is a clear, and its own worker stops the job."""


@dataclass(frozen=True)
class TaskNow:
    """A task instance as Airflow has it now. ``ti_id`` changes with every try.

    ``pool`` may be another than the operator's: a cluster policy can have moved it, and no worker is told.
    """

    ti_id: str
    state: str | None
    try_number: int
    pool: str | None = None


@dataclass(frozen=True)
class TasksNow:
    """Task instances by their UUID, and by what all tries of a task share."""

    by_id: Mapping[str, TaskNow] = field(default_factory=dict)
    by_key: Mapping[TaskKey, TaskNow] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnJob:
    """A Ray job of this deployment and the try that it belongs to."""

    info: JobInfo
    identity: TryIdentity

    @property
    def submission_id(self) -> str:
        """Ray's id of it."""
        return self.info.submission_id

    @property
    def live(self) -> bool:
        """Whether it may still run."""
        return not self.info.status.is_terminal

    @property
    def adoptable(self) -> bool:
        """Whether its task waits on a worker: should that die, a retry may go on with the job."""
        return self.info.metadata.get(ADOPTABLE_KEY) == "true"

    @property
    def key(self) -> TaskKey:
        """The task, whatever the try."""
        own = self.identity
        return own.dag_id, own.run_id, own.task_id, own.map_index

    @property
    def task(self) -> str:
        """``dag.task``, with the map index where there is one."""
        own = self.identity
        return f"{own.dag_id}.{own.task_id}" + (f"[{own.map_index}]" if own.map_index >= 0 else "")

    @property
    def slots(self) -> int | None:
        """Slots of its pool; ``None`` where the metadata does not say so soundly."""
        text = str(self.info.metadata.get(METADATA_PREFIX + "slots", ""))
        return int(text) if text.isdecimal() and len(text) < 10 else None

    def about(self, name: str) -> str | None:
        """What the metadata says of ``pool`` or ``footprint``."""
        value = self.info.metadata.get(METADATA_PREFIX + name)
        return None if value is None else str(value)


class Standing(StrEnum):
    """Whether somebody wants a job."""

    WANTED = "wanted"
    FOR_RETRY = "for the next try"
    UNCLEAR = "unclear"
    """Its task was cleared, or a restarting scheduler resets it: the next look tells."""

    ORPHAN = "orphan"


@dataclass(frozen=True)
class Findings:
    """What a look found: orphans to stop, and ids that are orphans if the next look finds them so again."""

    orphans: tuple[OwnJob, ...]
    unclear: frozenset[str]


def own_jobs(jobs: Iterable[JobInfo], deployment: str) -> list[OwnJob]:
    """The jobs of this deployment.

    The metadata alone does not make a job ours: whoever submits a job may copy it. The submission id has
    to be the one that this deployment computes for that very try.
    """
    found = []
    for info in jobs:
        identity = _identity(info.metadata)
        if (
            identity is not None
            and identity.deployment == deployment
            and identity.submission_id == info.submission_id
        ):
            found.append(OwnJob(info, identity))
    return found


def standing(job: OwnJob, tasks: TasksNow) -> Standing:
    """Whether somebody wants this job, live or ended."""
    own = tasks.by_id.get(job.identity.ti_id)
    if own is not None and own.state in _TRY_IS_ACTIVE:
        return Standing.WANTED
    now = tasks.by_key.get(job.key)
    if not job.adoptable or now is None:
        return Standing.ORPHAN
    # Airflow counts a try when it is scheduled; a run that was deleted and made anew begins at 0 again.
    if now.state in _NEXT_TRY_DECIDES and now.try_number >= job.identity.try_number:
        return Standing.FOR_RETRY
    return Standing.UNCLEAR if now.state is None else Standing.ORPHAN


def find_orphans(jobs: Iterable[OwnJob], tasks: TasksNow, unclear_before: Set[str] = frozenset()) -> Findings:
    """Live jobs that nobody wants.

    :param unclear_before: ``unclear`` of the look before.
    """
    orphans, unclear = [], set()
    for job in jobs:
        if not job.live:
            continue
        found = standing(job, tasks)
        if found is Standing.UNCLEAR:
            unclear.add(job.submission_id)
        if found is Standing.ORPHAN or (found is Standing.UNCLEAR and job.submission_id in unclear_before):
            orphans.append(job)
    return Findings(tuple(orphans), frozenset(unclear))


def uncounted(jobs: Iterable[OwnJob], tasks: TasksNow) -> dict[str, int]:
    """By pool, the slots of live jobs that Airflow does not count: their tasks hold none any more.

    A later try that holds slots counts for the job of an earlier one: it adopts that, or sees it end before
    it submits its own.
    """
    slots: dict[str, int] = {}
    for job in jobs:
        pool = pool_of(job, tasks)
        now = [tasks.by_id.get(job.identity.ti_id), tasks.by_key.get(job.key)]
        is_counted = any(task is not None and task.state in _TRY_IS_ACTIVE for task in now)
        if job.live and pool is not None and not is_counted:
            slots[pool] = slots.get(pool, 0) + (job.slots or 0)
    return slots


def pool_of(job: OwnJob, tasks: TasksNow) -> str | None:
    """The pool whose slots a job takes: its task's in Airflow, or what the job's metadata says.

    The metadata's, too, where the task has left the tenant's pools since: whatever it waits for now, the job
    was started for the tenant.
    """
    now = tasks.by_id.get(job.identity.ti_id) or tasks.by_key.get(job.key)
    own = f"ray.{job.identity.tenant}"
    if now is not None and now.pool is not None and f"{now.pool}.".startswith(f"{own}."):
        return now.pool
    return job.about("pool")


def old_records(jobs: Iterable[OwnJob], *, before: float, at_most: int) -> list[OwnJob]:
    """Ended jobs that ended before an instant, the oldest first.

    :param before: seconds since the epoch.
    """
    ended = [(job.info.end_time or job.info.start_time, job) for job in jobs if not job.live]
    old = [(time, job) for time, job in ended if time is not None and time <= before * 1000]
    return [job for _, job in sorted(old, key=lambda pair: pair[0])[:at_most]]


def deletable(records: Iterable[OwnJob], tasks: TasksNow) -> list[OwnJob]:
    """Those of ended jobs whose record nobody will read any more: a trigger that was away still has to."""
    return [job for job in records if _is_over(job, tasks) and standing(job, tasks) is Standing.ORPHAN]


def _is_over(job: OwnJob, tasks: TasksNow) -> bool:
    own = tasks.by_id.get(job.identity.ti_id)
    return own is None or own.state in _TRY_IS_OVER


def task_state(job: OwnJob, tasks: TasksNow) -> str:
    """What Airflow says of the job's try, in a few words."""
    own = tasks.by_id.get(job.identity.ti_id)
    if own is not None:
        return own.state or "cleared"
    now = tasks.by_key.get(job.key)
    if now is None:
        return "gone"
    return f"now try {now.try_number}: {now.state}" if now.state else "cleared"


def by_short_id(jobs: Collection[OwnJob], text: str) -> list[OwnJob]:
    """The jobs that a person may mean: by the whole submission id, or by the first characters of its hash."""
    exact = [job for job in jobs if job.submission_id == text]
    return exact or [job for job in jobs if len(text) >= SHORTEST_ID and _hash(job).startswith(text)]


def short_id(job: OwnJob) -> str:
    """The first characters of the submission id's hash: enough to tell jobs apart, short enough to type."""
    return _hash(job)[:SHORT_ID]


def _hash(job: OwnJob) -> str:
    return job.submission_id.rpartition("-")[2]


def _identity(metadata: Mapping[str, str]) -> TryIdentity | None:
    """The try of a job's metadata; ``None`` where it names none that Airflow could have.

    Any job can bring any metadata: what the database would choke on must not get that far.
    """
    values: dict[str, Any] = {f.name: metadata.get(METADATA_PREFIX + f.name) for f in fields(TryIdentity)}
    if not all(_is_sound(value) for value in values.values()):
        return None
    try:
        numbers = {name: int(values[name]) for name in ("map_index", "try_number")}
        uuid.UUID(values["ti_id"])
    except ValueError:
        return None
    identity = TryIdentity(**{**values, **numbers, "ti_id": str(uuid.UUID(values["ti_id"]))})
    # Ours are written in one way; another spelling of the same is somebody else's.
    same = identity.metadata().items() <= metadata.items()
    return identity if same and all(-1 <= number < 2**31 for number in numbers.values()) else None


def _is_sound(value: object) -> bool:
    """Text that Airflow's database and a terminal take: no NUL, no half of a surrogate pair, no escape."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_ID and value.isprintable()
