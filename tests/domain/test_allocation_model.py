"""A random stream of arrivals, ends, clears, node losses and syncs, against Airflow's scheduler in small.

Whatever happens, no more starts than there is room for, and in the end every task that can run has run.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.allocation import Member, allocate
from tests.domain.allocation_world import pools_of, started, tenants

SECONDS = 5.0


@dataclass(eq=False)
class Task:
    """A task instance. ``order`` is its logical date."""

    pool: str
    slots: int
    priority: int
    order: int
    state: str = "scheduled"
    job_lives: bool = False
    """Whether its Ray job holds slots: also for a while after the task was cleared."""

    @property
    def counts(self) -> bool:
        return self.state == "running"


@dataclass
class Airflow:
    """Pools, task instances, and the passes of the scheduler."""

    sizes: dict[str, int]
    tasks: list[Task] = field(default_factory=list)

    def waiting(self, pool: str | None = None) -> list[Task]:
        """In the order in which the scheduler looks at them."""
        found = [t for t in self.tasks if t.state == "scheduled" and pool in (None, t.pool)]
        return sorted(found, key=lambda task: (-task.priority, task.order))

    def counted(self, pool: str) -> int:
        return sum(task.slots for task in self.tasks if task.pool == pool and task.counts)

    def schedule(self, max_tis: int = 16) -> None:
        """Passes until one starts nothing."""
        while self._one_pass(max_tis):
            pass

    def _one_pass(self, max_tis: int) -> int:
        """``_executable_task_instances_to_queued`` of Airflow 3.3, as far as it is about pools.

        What did not fit is left out of the next query by dag and task id; here, these say pool and slots.
        """
        open_slots = {name: size - self.counted(name) for name, size in self.sizes.items()}
        max_tis = min(max_tis, sum(max(0, slots) for slots in open_slots.values()))
        starved_pools = {name for name, slots in open_slots.items() if slots <= 0}
        starved_tasks: set[tuple[str, int]] = set()
        executable = 0
        while max_tis:
            known = len(starved_pools) + len(starved_tasks)
            examined = [
                task
                for task in self.waiting()
                if task.pool not in starved_pools and (task.pool, task.slots) not in starved_tasks
            ][:max_tis]
            for task in examined:
                if open_slots[task.pool] <= 0:
                    starved_pools.add(task.pool)
                elif task.slots > open_slots[task.pool]:
                    starved_tasks.add((task.pool, task.slots))
                else:
                    open_slots[task.pool] -= task.slots
                    task.state, task.job_lives = "running", True
                    executable += 1
            if executable or len(examined) < max_tis or len(starved_pools) + len(starved_tasks) == known:
                break
        return executable


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.integers(1, 9), max_size=40), st.integers(0, 40), st.integers(1, 16))
def test_passes_of_the_scheduler_come_to_all_that_fits(waiting: list[int], size: int, max_tis: int) -> None:
    airflow = Airflow({"p": size}, [Task("p", slots, 1, n) for n, slots in enumerate(waiting)])
    airflow.schedule(max_tis)
    running = [task.order for task in airflow.tasks if task.counts]
    assert running == started(waiting, size)


class World:
    """Each step is one thing that happens; time goes on with the syncs."""

    def __init__(self, members: Sequence[Member], nodes: int, rng: random.Random) -> None:
        self.members = [_empty(member) for member in members]
        self.nodes, self.most_nodes, self.rng, self.now = nodes, nodes, rng, 0.0
        self.airflow = Airflow({pool.name: 0 for pool in pools_of(self.members)})
        self.numbers = itertools.count()
        self.first: dict[str, tuple[Task, float]] = {}
        self.may_hold = 0

    @property
    def capacity(self) -> int:
        return self.nodes * 8

    @property
    def live(self) -> list[Task]:
        """Those whose jobs hold slots, also jobs that outlived their task."""
        return [task for task in self.airflow.tasks if task.job_lives]

    def footprint(self, pool: str | None = None) -> int:
        return sum(task.slots for task in self.live if pool in (None, task.pool))

    def step(self) -> None:
        happens = self.rng.choice(
            [self.arrive, self.arrive, self.end, self.end, self.sync, self.sync, self.rare]
        )
        happens()
        self.airflow.schedule()
        assert self.footprint() <= self.may_hold

    def arrive(self) -> None:
        pool, slots = self.rng.choice(sorted(self.airflow.sizes)), self.rng.choice([1, 1, 2, 5, 20])
        priority = self.rng.choice([1, 1, 2])
        for _ in range(self.rng.randint(1, 8)):
            self.airflow.tasks.append(Task(pool, slots, priority, next(self.numbers)))

    def end(self) -> None:
        if self.live:
            task = self.rng.choice(self.live)
            task.job_lives = False
            task.state = "success"

    def rare(self) -> None:
        """A node comes or goes, or a task is cleared: it runs again while its old job still lives.

        Until the next sync, nobody can keep Airflow from using that task's slots a second time.
        """
        running = [task for task in self.airflow.tasks if task.counts]
        if running and self.rng.random() < 0.5:
            task = self.rng.choice(running)
            task.state = "success"
            self.may_hold += task.slots
            self.airflow.tasks.append(Task(task.pool, task.slots, task.priority, task.order))
        else:
            self.nodes = min(self.most_nodes, max(0, self.nodes + self.rng.choice([-2, -1, 1, 1])))

    def sync(self) -> None:
        self.now += SECONDS
        members = [self._look(member) for member in self.members]
        sizes = allocate(self.capacity, members)
        held = {pool.name: pool.occupied for pool in pools_of(members)}
        # Airflow must not start anything on slots that only Ray knows to be taken.
        hidden = {name: held[name] - self.airflow.counted(name) for name in held}
        self.airflow.sizes = {name: max(0, sizes[name] - hidden[name]) for name in held}
        self.may_hold = max(self.capacity, self.footprint())

    def finish(self) -> None:
        """The nodes are back and no more arrives: everything that can run does, in bounded time."""
        self.nodes = self.most_nodes
        able = [task for task in self.airflow.tasks if task.slots <= self._most(task.pool)]
        rounds = 0
        while left := [task for task in able if task.state != "success"]:
            rounds += 1
            assert rounds < 100 + 20 * len(able), left
            self.sync()
            self.airflow.schedule()
            assert self.footprint() <= self.may_hold
            for task in self.live[: 1 + len(self.live) // 4]:
                task.job_lives, task.state = False, "success"

    def _look(self, member: Member) -> Member:
        if member.members:
            return replace(member, members=[self._look(own) for own in member.members])
        waiting = self.airflow.waiting(member.name)
        occupied = max(self.footprint(member.name), self.airflow.counted(member.name))
        return replace(
            member,
            occupied=occupied,
            waiting=[task.slots for task in waiting],
            first_for=self._first_for(member.name, waiting),
        )

    def _first_for(self, pool: str, waiting: Sequence[Task]) -> float:
        if not waiting:
            self.first.pop(pool, None)
            return 0.0
        if pool not in self.first or self.first[pool][0] is not waiting[0]:
            self.first[pool] = (waiting[0], self.now)
        return self.now - self.first[pool][1]

    def _most(self, name: str) -> int:
        """The largest task that may ever run in a pool."""
        for member in self.members:
            for pool in pools_of([member]):
                if pool.name == name:
                    limits = [self.capacity, member.limit, pool.limit]
                    return min(limit for limit in limits if limit is not None)
        raise KeyError(name)


def _empty(member: Member) -> Member:
    return replace(member, waiting=(), first_for=0.0, members=[_empty(own) for own in member.members])


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    tenants(most=4, busy=False, starve=False), st.integers(1, 6), st.integers(0, 2**32), st.integers(10, 80)
)
def test_all_that_can_run_has_run_in_the_end(
    members: list[Member], nodes: int, seed: int, steps: int
) -> None:
    world = World(members, nodes, random.Random(seed))
    for _ in range(steps):
        world.step()
    world.finish()
