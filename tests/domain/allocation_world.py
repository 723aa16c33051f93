"""A small Airflow for tests of allocations: pools, waiting tasks, and a scheduler that starts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from airflow_provider_raytenant.domain.allocation import Member

WEIGHTS = [0.5, 1.0, 1.0, 2.0, 3.0]


def pools_of(members: Sequence[Member]) -> Iterator[Member]:
    """The pools, in order."""
    for member in members:
        if member.members:
            yield from pools_of(member.members)
        else:
            yield member


def occupied(member: Member) -> int:
    return sum(pool.occupied for pool in pools_of([member]))


def started(waiting: Sequence[int], open_slots: int) -> list[int]:
    """The places of the tasks that Airflow's scheduler starts in a pool, given time.

    It goes through the tasks in order. One that does not fit is passed over, and smaller ones behind it in
    the same pool start ("we can execute tasks with lower priority if there's enough room"):
    airflow/jobs/scheduler_job_runner.py, ``_executable_task_instances_to_queued`` of Airflow 3.3. It looks
    at some tasks at a time (``max_tis_per_query``), but goes on, over several passes, until nothing fits.
    """
    places = []
    for place, slots in enumerate(waiting):
        if slots <= open_slots:
            open_slots -= slots
            places.append(place)
    return places


def after_start(members: Sequence[Member], sizes: Mapping[str, int]) -> list[Member]:
    """The members once Airflow has started what fits into pools of these sizes."""
    result = []
    for member in members:
        if member.members:
            result.append(replace(member, members=after_start(member.members, sizes)))
            continue
        places = set(started(member.waiting, sizes[member.name] - member.occupied))
        taken = sum(member.waiting[place] for place in places)
        left = [slots for place, slots in enumerate(member.waiting) if place not in places]
        first_for = 0.0 if 0 in places else member.first_for
        result.append(replace(member, occupied=member.occupied + taken, waiting=left, first_for=first_for))
    return result


def held(members: Sequence[Member]) -> Counter[str]:
    return Counter({pool.name: pool.occupied for pool in pools_of(members)})


@st.composite
def pools(
    draw: st.DrawFn,
    name: str,
    *,
    largest: int = 6,
    starve: bool = True,
    busy: bool = True,
    plain: bool = False,
) -> Member:
    limit = None if plain else draw(st.none() | st.none() | st.integers(0, 40))
    return Member(
        name,
        weight=draw(st.sampled_from(WEIGHTS)),
        guarantee=0 if plain else draw(st.sampled_from([0, 0, 1, 4, 9])),
        limit=limit,
        occupied=draw(st.integers(0, 15)) if busy else 0,
        waiting=draw(st.lists(st.integers(1, largest), max_size=12)),
        first_for=draw(st.sampled_from([0.0, 10.0, 59.0, 60.0, 100.0, 1000.0])) if starve else 0.0,
    )


@st.composite
def tenants(draw: st.DrawFn, *, most: int = 6, nested: bool = True, **options: bool | int) -> list[Member]:
    """Members of a group; about half have pools of their own."""
    result = []
    for number in range(draw(st.integers(1, most))):
        name = f"t{number}"
        member = draw(pools(name, **options))  # type: ignore[arg-type]
        if nested and draw(st.booleans()):
            kinds = ["main", "large", "backfill"][: draw(st.integers(1, 3))]
            own = [draw(pools(f"{name}.{kind}", **options)) for kind in kinds]  # type: ignore[arg-type]
            member = replace(member, occupied=0, waiting=(), first_for=0.0, members=own)
        result.append(member)
    return result
