"""Tenants on elastic pools over time: a plan each interval, and a scheduler that starts what fits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_plan import plan
from airflow_provider_raytenant.domain.pool_rows import ExistingPool, PoolPlan
from airflow_provider_raytenant.domain.tenants import TenantFile
from tests.domain.helpers import make_cluster, make_file, make_node, make_tenant, seeded

INTERVAL = 5
CAPACITY = 16
CLUSTER = make_cluster(groups={"cpu": {"slot": {"cpus": 1, "memory": "4GiB"}}})


@dataclass
class Job:
    """``ends`` is an instant in seconds, ``counted`` whether its task still holds slots in Airflow."""

    slots: int
    ends: int
    counted: bool = True


@dataclass
class Airflow:
    """Pools, what runs in them, and what waits: (slots, seconds that it takes), in order."""

    file: TenantFile
    pools: dict[str, ExistingPool] = field(default_factory=dict)
    running: dict[str, list[Job]] = field(default_factory=dict)
    waiting: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    first_since: dict[str, int] = field(default_factory=dict)
    now: int = 0
    nodes: int = 1
    peak: int = 0

    def sync(self) -> PoolPlan:
        """What the controller does."""
        for name, pool in self.pools.items():
            counted = sum(job.slots for job in self.running.get(name, ()) if job.counted)
            self.pools[name] = replace(pool, occupied=counted)
        demand = {
            name: Demand(tuple(slots for slots, _ in tasks), float(self.now - self.first_since[name]))
            for name, tasks in self.waiting.items()
            if tasks
        }
        uncounted = {
            name: sum(job.slots for job in jobs if not job.counted) for name, jobs in self.running.items()
        }
        nodes = {"shared": [make_node(CAPACITY // 2, 2 * CAPACITY)] * (2 * self.nodes)}
        written = plan(self.file, nodes, self.pools, {}, demand, uncounted)
        for row in written.changes:
            self.pools[row.name] = ExistingPool(row.name, row.wanted, row.description, True, row.occupied)
        return written

    def wait(self, pool: str, *tasks: tuple[int, int]) -> None:
        """Tasks become ready."""
        if not self.waiting.get(pool):
            self.first_since[pool] = self.now
        self.waiting.setdefault(pool, []).extend(tasks)

    def step(self) -> None:
        """A second: jobs end, and the scheduler starts what fits, skipping what does not."""
        self.now += 1
        for name, jobs in self.running.items():
            self.running[name] = [job for job in jobs if job.ends > self.now]
        for name, tasks in self.waiting.items():
            held = sum(job.slots for job in self.running.get(name, ()) if job.counted)
            first = tasks[0] if tasks else None
            for task in list(tasks):
                if held + task[0] <= self.pools[name].slots:
                    held += task[0]
                    tasks.remove(task)
                    self.running.setdefault(name, []).append(Job(task[0], self.now + task[1]))
            if tasks and tasks[0] is not first:
                self.first_since[name] = self.now
        self.peak = max(self.peak, self.in_use())

    def in_use(self, *pools: str) -> int:
        """Slots of all jobs, those that Airflow does not know of among them."""
        return sum(job.slots for name in pools or self.running for job in self.running.get(name, ()))

    def run(self, seconds: int) -> None:
        """Go on, with a sync each interval."""
        for _ in range(seconds):
            if self.now % INTERVAL == 0:
                self.sync()
            self.step()


def airflow(*guarantees: int) -> Airflow:
    names = ("acme", "globex", "initech")
    tenants = [make_tenant(n, guarantee=g) for n, g in zip(names, guarantees, strict=False)]
    return Airflow(make_file(CLUSTER, *tenants))


def test_a_tenant_borrows_all_that_is_idle_and_gives_back_as_its_tasks_end() -> None:
    world = airflow(4, 4)
    world.run(1)
    world.wait("ray.acme", *[(1, 20 + n) for n in range(40)])
    world.run(10)
    assert world.in_use("ray.acme") == CAPACITY
    world.wait("ray.globex", *[(1, 60)] * 20)
    world.run(5)
    # Nothing is killed: globex has to wait for the first end, but acme starts no more.
    assert world.in_use("ray.acme") == CAPACITY
    world.run(25)
    assert (world.in_use("ray.acme"), world.in_use("ray.globex")) == (8, 8)
    world.run(200)
    assert world.in_use() == 0
    assert world.peak == CAPACITY


def test_a_large_task_starts_beside_a_stream_of_small_ones() -> None:
    world = airflow(0, 0)
    world.run(1)
    world.wait("ray.globex", (12, 10))
    for n in range(300):
        world.wait("ray.acme", *[(1, 7 + n % 5)] * 3)
        world.run(1)
        if not world.waiting["ray.globex"]:
            break
    assert world.in_use("ray.globex") == 12
    assert world.peak <= CAPACITY


def test_a_cleared_tasks_job_keeps_its_slots_until_it_ends() -> None:
    world = airflow(0, 0)
    world.run(1)
    world.wait("ray.acme", (8, 1000))
    world.run(10)
    world.running["ray.acme"][0].counted = False
    # The scheduler is not between the clear and the next sync here; that window is the interval's.
    world.sync()
    for pool in ("ray.acme", "ray.globex"):
        world.wait(pool, *[(1, 50)] * 20)
    world.run(100)
    assert world.in_use() == world.peak == CAPACITY


def test_lost_nodes_drain() -> None:
    world = airflow(2, 2)
    world.nodes = 2
    world.run(1)
    world.wait("ray.acme", *[(1, 10 + n) for n in range(60)])
    world.wait("ray.globex", *[(1, 10 + n) for n in range(60)])
    world.run(9)
    assert world.in_use() == 2 * CAPACITY
    world.nodes = 1
    world.run(40)
    assert world.in_use() == CAPACITY
    world.run(1000)
    assert world.in_use() == 0
    assert not any(world.waiting.values())


_arrivals = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from(["acme", "globex", "initech"]),
        st.integers(1, 16),
        st.integers(1, 20),
    ),
    min_size=1,
    max_size=25,
)


@settings(seeded, max_examples=25)
@given(_arrivals, st.tuples(*[st.integers(0, 8)] * 3))
def test_whatever_comes_runs_in_the_end_and_never_more_than_there_is_room_for(
    arrivals: list[tuple[int, str, int, int]], guarantees: tuple[int, int, int]
) -> None:
    world = airflow(*guarantees)
    world.run(1)
    for pause, tenant, slots, seconds in arrivals:
        world.run(pause)
        world.wait(f"ray.{tenant}", (slots, seconds))
    # One after the other, each with the patience of a starving one before it.
    for _ in range(len(arrivals) * 30):
        if not any(world.waiting.values()):
            break
        world.run(INTERVAL)
    assert not any(world.waiting.values())
    assert world.peak <= CAPACITY
