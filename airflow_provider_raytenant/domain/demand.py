"""What waits for a pool, since when the first of it has been first in line, and what runs there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

OrderKey = tuple[int, bool, float, int]
"""Where a task instance stands in the order in which Airflow starts them; the lowest is first."""


@dataclass(frozen=True)
class Demand:
    """What waits for a pool, and what it waits for.

    :param waiting: slots of the tasks that Airflow would start if the pool had room, in its order.
    :param first_for: seconds since the first of them was ready, or since the one before it started, if that
        was later. Not its whole wait: in a long queue everyone has waited long, and only who is passed over
        starves.
    :param held: of each task that holds slots: how many, and the seconds since it got them.
    """

    waiting: tuple[int, ...] = ()
    first_for: float = 0.0
    held: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Standing:
    """A task instance in its pool: ``since`` is when it was scheduled, or for an active one queued."""

    key: OrderKey
    slots: int
    since: datetime | None


def order_key(priority_weight: int, logical_date: datetime | None, map_index: int) -> OrderKey:
    """Airflow's own order; a run without logical date comes last, as PostgreSQL has it."""
    return (
        -priority_weight,
        logical_date is None,
        logical_date.timestamp() if logical_date is not None else 0.0,
        map_index,
    )


def demand_of(
    first: Standing | None, waiting: Sequence[int], active: Sequence[Standing], now: datetime
) -> Demand:
    """The demand of one pool.

    :param first: the first that waits; ``None`` where none does.
    :param waiting: slots of all that wait, in the order in which they would start.
    :param active: those that hold slots of the pool.
    """
    held = tuple((each.slots, _seconds(each.since, now)) for each in active)
    if first is None:
        return Demand(held=held)
    started = [each.since for each in active if each.since is not None and not _went_around(each, first)]
    return Demand(tuple(waiting), _seconds(max([*started, first.since or now]), now), held)


def _seconds(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since is not None else 0.0


def _went_around(active: Standing, first: Standing) -> bool:
    """Whether it started while a larger task before it could not: that does not make anyone first in line."""
    return active.slots < first.slots and active.key >= first.key
