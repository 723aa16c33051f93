"""What is known of a task that is to be explained: plain facts of Airflow, of Ray and of the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_provider_raytenant.domain.heartbeat import Heartbeat
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.pool_rows import ExistingPool, PlannedPool


@dataclass(frozen=True)
class TaskFacts:
    """The task instance. Instants are aware; ``None`` where Airflow has none.

    :param is_ours: whether its operator is one of a tenant's jobs.
    :param slots: of its pool, as the DAG asks for them.
    :param retry_at: when it may be tried again.
    :param resumes: it was deferred, and comes back to a worker for its end.
    :param trigger_taken: whether a triggerer has its trigger; ``None`` where it has none.
    :param heartbeat_at: when its worker was last heard of.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    ti_id: str = ""
    state: str | None = None
    try_number: int = 1
    pool: str = "default_pool"
    slots: int = 1
    operator: str = ""
    is_ours: bool = True
    is_mapped: bool = False
    scheduled_at: datetime | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    retry_at: datetime | None = None
    heartbeat_at: datetime | None = None
    resumes: bool = False
    trigger_taken: bool | None = None

    @property
    def label(self) -> str:
        """``dag.task``, with the map index where there is one."""
        return f"{self.dag_id}.{self.task_id}" + (f"[{self.map_index}]" if self.map_index >= 0 else "")


@dataclass(frozen=True)
class Runs:
    """How many runs are running and how many may: of the DAG, or of the backfill where that is named."""

    active: int
    most: int
    backfill: int | None = None
    backfill_paused: bool = False


@dataclass(frozen=True)
class RunFacts:
    """The run and its DAG. ``is_gone``: no DAG file has the DAG any more."""

    state: str = "running"
    ended_at: datetime | None = None
    run_after: datetime | None = None
    runs: Runs = Runs(1, 16)
    is_paused: bool = False
    is_gone: bool = False


@dataclass(frozen=True)
class Upstream:
    """A task that comes before, and how many of its instances are in which state; ``none`` is a state."""

    task_id: str
    states: Mapping[str, int]
    direct: bool = True


@dataclass(frozen=True)
class Past:
    """``depends_on_past``: the state of the same task in the run before, ``None`` where that has none."""

    run_id: str
    state: str | None


@dataclass(frozen=True)
class HeldBack:
    """A limit of Airflow's that is reached: its name, and how many of how many are active."""

    limit: str
    active: int
    most: int


@dataclass(frozen=True)
class Line:
    """What is ready for a pool, in the scheduler's order.

    :param place: of the task among those that nothing else holds back; ``None`` where something does.
    :param of: how many there are.
    :param ahead: slots of those before it.
    :param seen_before: tasks of all pools with room that the scheduler looks at before it.
    """

    place: int | None
    of: int
    ahead: Sequence[int] = ()
    held_back: HeldBack | None = None
    seen_before: int = 0


@dataclass(frozen=True)
class Holder:
    """A task that holds slots. ``since`` is when it was queued; ``ray`` is ``None`` where nobody knows."""

    pool: str
    slots: int
    task: str
    run_id: str
    state: str
    ti_id: str = ""
    since: datetime | None = None
    job: str | None = None
    tenant: str | None = None
    ray: str | None = None


@dataclass(frozen=True)
class JobFacts:
    """The Ray job of the task's try. ``page`` is its address on the dashboard."""

    short_id: str
    cluster: str
    info: JobInfo
    page: str = ""


@dataclass(frozen=True)
class PlanFacts:
    """What a sync would make of the pool.

    :param limit: slots of the tenant's limit, ``None`` where it has none.
    :param others: the pools that share the same slots.
    :param uncounted: slots that jobs hold whose task is over.
    """

    pool: PlannedPool
    limit: int | None = None
    others: Sequence[PlannedPool] = ()
    uncounted: int = 0

    @property
    def most(self) -> int:
        """Slots that the pool could ever have."""
        return self.pool.most or 0


@dataclass(frozen=True)
class Processes:
    """Signs of life of what has to act, and the seconds after which Airflow's count as dead."""

    schedulers: Sequence[Heartbeat] = ()
    triggerers: Sequence[Heartbeat] = ()
    controllers: Sequence[Heartbeat] = ()
    rounds: Sequence[Heartbeat] = ()
    scheduler_silent: float = 30.0
    triggerer_silent: float = 30.0


@dataclass(frozen=True)
class Settings:
    """Airflow's configuration as this command has it, and how many tasks are queued or run in all."""

    max_tis_per_query: int = 16
    parallelism: int = 32
    executing: int = 0

    @property
    def seen(self) -> int:
        """Tasks that the scheduler looks at in one pass; 0: any number."""
        given = [number for number in (self.max_tis_per_query, self.parallelism) if number > 0]
        return min(given, default=0)


@dataclass(frozen=True)
class Facts:
    """All that is known of a task.

    :param pool: its pool, ``None`` where there is none of that name.
    :param tenant: whose pool it is, by its name; or whose job.
    :param plan: ``None`` where the pool is not of the tenants, or its cluster is silent.
    :param silent: by cluster that was asked and gave no answer, why.
    :param line: where it is scheduled.
    :param failure: the XCom ``raytenant_failure``.
    """

    now: datetime
    task: TaskFacts
    run: RunFacts = RunFacts()
    upstream: Sequence[Upstream] = ()
    past: Past | None = None
    pool: ExistingPool | None = None
    tenant: str | None = None
    plan: PlanFacts | None = None
    silent: Mapping[str, str] = field(default_factory=dict)
    line: Line | None = None
    holders: Sequence[Holder] = ()
    job: JobFacts | None = None
    failure: Mapping[str, Any] | None = None
    processes: Processes = Processes()
    settings: Settings = Settings()
