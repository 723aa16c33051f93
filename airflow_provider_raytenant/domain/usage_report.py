"""Who held how many slots for how long: for showing back or charging. Pure.

All sums are of whole microseconds (:class:`~datetime.timedelta`), so the parts add up to the whole exactly.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final, NamedTuple

from airflow_provider_raytenant.domain.durations import LONGEST
from airflow_provider_raytenant.domain.pool_rows import possible_pools
from airflow_provider_raytenant.domain.resources import Resources, slots_for
from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.domain.usage import RUN_SECONDS

TINY_BELOW: Final = 10.0
"""Seconds of work below which a task may be better off as a plain Airflow task. A start costs about 3 s here
(measured: 2.3 to 4.4 s beside the job's own time, 8 s on average when 20 start at once), and a plain task has
a start of its own. Beyond 10 s of work, what is left of a wait is for resources or for an environment, and a
plain task would not be rid of it."""

ENOUGH_TRIES: Final = 3
"""Tries whose work is known, before anything is said of a task."""

_NONE: Final = timedelta(0)
_HOUR: Final = timedelta(hours=1)


class Span(NamedTuple):
    """From when to when; both aware. The end is now: what has not ended is counted up to it."""

    begin: datetime
    end: datetime


class Owner(NamedTuple):
    """Whose a pool is: the tenant, the group (``shared/gpu``: a slot of it is no slot of ``shared/cpu``), and
    what one of its slots is."""

    tenant: str
    group: str
    slot: Resources


class Try(NamedTuple):
    """One try of a task, as Airflow's database tells it.

    :param slots: its ``pool_slots``.
    :param scheduled: when it began to wait for its pool. For one that came back to a worker after a deferral
        this is when it came back, and so it is with ``queued``; ``started`` stays what it was.
    :param queued: when it got its slots.
    :param started: when it first ran on a worker; ``None`` if it never did.
    :param ended: ``None`` while it has not. Airflow leaves the end of the try before where it knows no other.
    :param usage: its XCom ``raytenant_usage``, whatever that holds; ``None`` where there is none.
    """

    pool: str
    slots: int
    dag_id: str
    task_id: str
    scheduled: datetime | None
    queued: datetime | None
    started: datetime | None
    ended: datetime | None
    usage: Any = None


@dataclass
class Totals:
    """Sums over tries.

    :param slot_time: slots times the time for which they were held: what was requested.
    :param seen_slot_time: the part of it that belongs to tries whose peak is known.
    :param peak_slot_time: what of slots these would have needed for their peaks.
    :param waits: tries whose wait for the pool is known.
    :param waited: the sum of these.
    """

    slot_time: timedelta = _NONE
    tries: int = 0
    seen_slot_time: timedelta = _NONE
    peak_slot_time: timedelta = _NONE
    waits: int = 0
    waited: timedelta = _NONE
    worst_wait: timedelta | None = None

    def add(self, other: Totals) -> None:
        """Take in what others did."""
        self.slot_time += other.slot_time
        self.tries += other.tries
        self.seen_slot_time += other.seen_slot_time
        self.peak_slot_time += other.peak_slot_time
        self.waits += other.waits
        self.waited += other.waited
        if other.worst_wait is not None:
            self.worst_wait = max(self.worst_wait or _NONE, other.worst_wait)

    @property
    def slot_hours(self) -> float:
        """What was held."""
        return self.slot_time / _HOUR

    @property
    def mean_wait(self) -> timedelta | None:
        """Of the tries whose wait is known."""
        return self.waited / self.waits if self.waits else None

    @property
    def used(self) -> float | None:
        """What the peaks would have needed, as a part of what was held meanwhile; above 1 for overuse.

        ``None`` where no peak is known.
        """
        return self.peak_slot_time / self.seen_slot_time if self.seen_slot_time else None

    @property
    def known(self) -> float:
        """The part of the slot-hours for which :attr:`used` speaks."""
        return self.seen_slot_time / self.slot_time if self.slot_time else 0.0


class Line(NamedTuple):
    """A tenant's totals in a group, of one DAG or (``None``) of all."""

    tenant: str
    group: str
    dag_id: str | None
    totals: Totals


class TinyTask(NamedTuple):
    """A task whose start costs more than its work.

    :param tries: those whose work is known.
    :param work: median of the seconds that the entrypoint ran.
    :param rest: median of the seconds for which slots were held beside that.
    :param slots: the most that a try held.
    """

    tenant: str
    dag_id: str
    task_id: str
    tries: int
    work: float
    rest: float
    slots: int


def pools_of(file: TenantFile) -> dict[str, Owner]:
    """Whose each pool is: of all kinds, since one that is not enabled now may have been in use before."""
    return {
        pool.name: Owner(
            pool.tenant.name,
            f"{pool.tenant.cluster}/{pool.group}",
            file.clusters[pool.tenant.cluster].groups[pool.group].slot.resources,
        )
        for pool in possible_pools(file)
    }


def held(one: Try, until: datetime) -> list[tuple[datetime, datetime]]:
    """From when to when a try held its slots, in order; what has not ended, up to ``until``.

    A task that came back from a deferral gave its slots back until it was queued again. What it came back
    from before that has left no trace and counts as held.
    """
    known = [instant for instant in (one.queued, one.started) if instant is not None]
    stale = one.ended is not None and one.scheduled is not None and one.ended < one.scheduled
    if not known or stale:
        return []
    begin, end = min(known), one.ended or until
    if one.scheduled is None or not _came_back(one):
        pieces = [(begin, end)]
    elif one.queued is None or one.queued < one.scheduled:
        pieces = [(begin, one.scheduled)]
    else:
        pieces = [(begin, one.scheduled), (one.queued, end)]
    return [piece for piece in pieces if piece[0] < piece[1]]


def wait(one: Try) -> timedelta | None:
    """For how long it waited for its slots; ``None`` where that is not known (any more)."""
    if one.scheduled is None or one.queued is None or _came_back(one) or one.queued < one.scheduled:
        return None
    return one.queued - one.scheduled


def _came_back(one: Try) -> bool:
    return one.started is not None and one.scheduled is not None and one.started < one.scheduled


@dataclass
class _Times:
    """Seconds of a task's tries, 16 bytes a try."""

    work: array[float] = field(default_factory=lambda: array("d"))
    rest: array[float] = field(default_factory=lambda: array("d"))
    slots: int = 0


class UsageReport:
    """Takes in tries one after the other, and keeps sums of them.

    :param owners: pools that count, see :func:`pools_of`.
    :param span: what counts of a try is what it held within.
    """

    def __init__(self, owners: Mapping[str, Owner], span: Span) -> None:
        self._owners = owners
        self._span = span
        self._sums: defaultdict[tuple[str, str, str], Totals] = defaultdict(Totals)
        self._times: defaultdict[tuple[str, str, str], _Times] = defaultdict(_Times)

    def add(self, one: Try) -> None:
        """Take in a try; nothing, where it held no slot of these pools within the span."""
        owner = self._owners.get(one.pool)
        if owner is None:
            return
        pieces = held(one, self._span.end)
        within = sum((self._clipped(*piece) for piece in pieces), _NONE)
        if not within:
            return
        sums = self._sums[owner.tenant, owner.group, one.dag_id]
        sums.add(_totals(one, within, owner.slot))
        work = _run_seconds(one.usage)
        # What needs a GPU is no plain task, however short.
        if work is not None and one.ended is not None and not owner.slot.gpus:
            times = self._times[owner.tenant, one.dag_id, one.task_id]
            whole = sum((end - begin for begin, end in pieces), _NONE)
            times.work.append(work)
            times.rest.append(whole.total_seconds() - work)
            times.slots = max(times.slots, one.slots)

    def by_tenant(self) -> list[Line]:
        """A line for each tenant and group, those of a group together, the largest first."""
        together: defaultdict[tuple[str, str], Totals] = defaultdict(Totals)
        for (tenant, group, _), sums in self._sums.items():
            together[tenant, group].add(sums)
        lines = [Line(tenant, group, None, sums) for (tenant, group), sums in together.items()]
        return sorted(lines, key=lambda line: (line.group, -line.totals.slot_time, line.tenant))

    def by_dag(self) -> list[Line]:
        """A line for each tenant, group and DAG, those of a tenant's group together, the largest first."""
        lines = [Line(*key, sums) for key, sums in self._sums.items()]
        return sorted(
            lines, key=lambda line: (line.tenant, line.group, -line.totals.slot_time, line.dag_id or "")
        )

    def tiny(self) -> list[TinyTask]:
        """Tasks that would be better off as plain Airflow tasks, the one that wastes most first.

        At least :data:`ENOUGH_TRIES` tries whose work is known; the median of their work is below
        :data:`TINY_BELOW`, and smaller than the median of what they held their slots for beside it.
        """
        tasks = [
            TinyTask(*key, len(times.work), median(times.work), median(times.rest), times.slots)
            for key, times in self._times.items()
            if len(times.work) >= ENOUGH_TRIES
        ]
        tiny = [task for task in tasks if task.work < min(task.rest, TINY_BELOW)]
        return sorted(tiny, key=lambda task: (-task.tries * task.slots * task.rest, task[:3]))

    def _clipped(self, begin: datetime, end: datetime) -> timedelta:
        return max(_NONE, min(end, self._span.end) - max(begin, self._span.begin))


def _totals(one: Try, within: timedelta, slot: Resources) -> Totals:
    totals = Totals(slot_time=one.slots * within, tries=1)
    waited = wait(one)
    if waited is not None:
        totals.waits, totals.waited, totals.worst_wait = 1, waited, waited
    peak = _peak(one.usage)
    if peak is not None:
        totals.seen_slot_time, totals.peak_slot_time = totals.slot_time, slots_for(peak, slot) * within
    return totals


def _peak(usage: Any) -> Resources | None:
    """The peak in an XCom; ``None`` where there is none that is sound."""
    if not isinstance(usage, Mapping) or not isinstance(usage.get("peak"), Mapping):
        return None
    try:
        return Resources.from_json(usage["peak"])
    except (ValueError, TypeError, AttributeError):
        return None


def _run_seconds(usage: Any) -> float | None:
    seconds = usage.get(RUN_SECONDS) if isinstance(usage, Mapping) else None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds <= LONGEST:
        return None
    return float(seconds)
