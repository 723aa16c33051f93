"""A small Airflow and a small Ray that do whatever they like, and a sweep that must be right all the same."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.job_spec import TryIdentity
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.sweep import (
    OwnJob,
    TaskNow,
    TasksNow,
    deletable,
    find_orphans,
    old_records,
    own_jobs,
)

ACTIVE = ("queued", "running", "deferred")
RETRIES = ("up_for_retry", "scheduled", "queued", "running")
OURS = "prod"


@dataclass
class Task:
    """One task instance: what Airflow's table has of it. ``ti_id`` is new after each clear and retry."""

    name: str
    adoptable: bool
    ti_id: str
    state: str | None = None
    try_number: int = 0

    @property
    def now(self) -> TaskNow:
        return TaskNow(self.ti_id, self.state, self.try_number)


@dataclass
class Job:
    identity: TryIdentity
    adoptable: bool
    status: str = "RUNNING"
    submission_id: str = ""
    quiet_sweeps: int = 0
    """Whole sweeps since its task was last touched."""

    def info(self) -> JobInfo:
        metadata = self.identity.metadata()
        if self.adoptable:
            metadata["raytenant.adoptable"] = "true"
        name = self.submission_id or self.identity.submission_id
        return JobInfo(name, JobStatus(self.status), metadata=metadata, start_time=0, end_time=1)


@dataclass
class Sweep:
    """A look at Ray that waits for the look at the database."""

    jobs: list[OwnJob] = field(default_factory=list)


class World(RuleBasedStateMachine):
    """Each rule is one step of Airflow, of Ray, of a stranger, or of the sweep."""

    tasks = Bundle("tasks")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.all_tasks: dict[str, Task] = {}
        self.jobs: list[Job] = []
        self.strangers: list[Job] = []
        self.unclear: frozenset[str] = frozenset()
        self.sweep: Sweep | None = None

    def new_id(self) -> str:
        self.count += 1
        return str(uuid.UUID(int=self.count))

    def identity(self, task: Task, deployment: str = OURS) -> TryIdentity:
        return TryIdentity(deployment, "acme", "dag", "run", task.name, -1, task.try_number, task.ti_id)

    def touched(self, task: Task) -> None:
        for job in self.jobs:
            if job.identity.task_id == task.name:
                job.quiet_sweeps = 0

    @initialize(target=tasks, kinds=st.lists(st.booleans(), min_size=1, max_size=3))
    def begin(self, kinds: list[bool]) -> object:
        made = [Task(f"task{n}", adoptable, self.new_id()) for n, adoptable in enumerate(kinds)]
        self.all_tasks = {task.name: task for task in made}
        for task in made:
            self.start(task)
        return multiple(*made)

    # -- Airflow ----------------------------------------------------------------------------------

    @rule(task=tasks)
    def go_on(self, task: Task) -> None:
        """The scheduler, the executor or the worker does what comes next."""
        self.touched(task)
        if task.state in (None, "up_for_retry"):
            task.state = "scheduled"
            task.try_number += 1
        elif task.state in ("scheduled", "queued"):
            task.state = "queued" if task.state == "scheduled" else "running"
        elif task.state == "running" and not task.adoptable:
            task.state = "deferred"

    @rule(task=tasks)
    def start(self, task: Task) -> None:
        """All of it at once, up to the submit: chance alone seldom gets that far."""
        if task.state in (None, "up_for_retry", "scheduled", "queued"):
            while task.state != ("running" if task.adoptable else "deferred"):
                self.go_on(task)
            self.submit(task)

    @rule(task=tasks, state=st.sampled_from(["success", "failed", "skipped", "removed"]))
    def end(self, task: Task, state: str) -> None:
        """It ends, or somebody marks it."""
        self.touched(task)
        task.state = state

    @rule(task=tasks)
    def fail_and_retry(self, task: Task) -> None:
        if task.state in ("running", "deferred"):
            self.touched(task)
            task.ti_id, task.state = self.new_id(), "up_for_retry"

    @rule(task=tasks)
    def clear(self, task: Task) -> None:
        self.touched(task)
        task.state = "restarting" if task.state == "running" else None
        task.ti_id = self.new_id()

    @rule(task=tasks)
    def resume(self, task: Task) -> None:
        """The trigger hands the end over to a worker: it does not follow the job any more."""
        if task.state == "deferred":
            self.touched(task)
            task.state = "scheduled"

    @rule(task=tasks)
    def delete_and_make_anew(self, task: Task) -> None:
        self.touched(task)
        task.ti_id, task.state, task.try_number = self.new_id(), None, 0

    # -- Ray --------------------------------------------------------------------------------------

    @rule(task=tasks)
    def submit(self, task: Task) -> None:
        """The trigger, or the worker that waits, submits by the try's own id: once, whatever happens."""
        may = "running" if task.adoptable else "deferred"
        known = {job.identity.ti_id for job in self.jobs}
        if task.state == may and task.ti_id not in known and not self.adopted(task):
            self.jobs.append(Job(self.identity(task), task.adoptable))

    def adopted(self, task: Task) -> bool:
        return any(j.status == "RUNNING" and j.identity.task_id == task.name for j in self.jobs)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        live = [job for job in self.jobs if job.status == "RUNNING"]
        if live:
            data.draw(st.sampled_from(live)).status = data.draw(st.sampled_from(["SUCCEEDED", "FAILED"]))

    @rule(task=tasks, kind=st.sampled_from(["other deployment", "copied metadata"]))
    def stranger(self, task: Task, kind: str) -> None:
        """Somebody else's job, whatever it says of itself."""
        if kind == "other deployment":
            job = Job(self.identity(task, "staging"), task.adoptable)
        else:
            job = Job(self.identity(task), task.adoptable, submission_id=f"raysubmit_{len(self.strangers)}")
        self.strangers.append(job)

    # -- the sweep --------------------------------------------------------------------------------

    @precondition(lambda self: self.sweep is None)
    @rule()
    def look_at_ray(self) -> None:
        infos = [job.info() for job in [*self.jobs, *self.strangers]]
        self.sweep = Sweep(own_jobs(infos, OURS))

    @precondition(lambda self: self.sweep is not None)
    @rule()
    def look_at_the_database_and_act(self) -> None:
        """Whatever happened between the two looks."""
        assert self.sweep is not None
        seen, self.sweep = self.sweep.jobs, None
        current = {task.ti_id: task.now for task in self.all_tasks.values()}
        keys = {("dag", "run", task.name, -1): task.now for task in self.all_tasks.values()}
        tasks = TasksNow(current, keys)
        found = find_orphans(seen, tasks, self.unclear)
        self.unclear = found.unclear
        own = {job.identity.submission_id: job for job in self.jobs}
        for orphan in found.orphans:
            assert self.wanted_by(own[orphan.submission_id]) is None
            own[orphan.submission_id].status = "STOPPED"
        for record in deletable(old_records(seen, before=10, at_most=99), tasks):
            assert self.wanted_by(own[record.submission_id]) is None
        for job in self.jobs:
            job.quiet_sweeps += 1

    @precondition(lambda self: self.sweep is None)
    @rule()
    def three_sweeps(self) -> None:
        """Nothing happens meanwhile."""
        for _ in range(3):
            self.look_at_ray()
            self.look_at_the_database_and_act()

    def wanted_by(self, job: Job) -> Task | None:
        """The task whose active try is the job's own, or will adopt it."""
        for task in self.all_tasks.values():
            if task.ti_id == job.identity.ti_id and task.state in ACTIVE:
                return task
            later = task.try_number > job.identity.try_number and task.state in RETRIES
            same = task.name == job.identity.task_id
            if job.adoptable and same and (later or task.state == "up_for_retry"):
                return task
        return None

    @invariant()
    def no_orphan_is_left_after_two_sweeps(self) -> None:
        for job in self.jobs:
            # One more is counted for a sweep that had looked at Ray before the task was touched.
            if job.status == "RUNNING" and job.quiet_sweeps >= 3 and job.submission_id == "":
                task = self.all_tasks[job.identity.task_id]
                own = task.ti_id == job.identity.ti_id and task.state in ACTIVE
                retry = job.adoptable and task.state in RETRIES
                assert own or retry, (job, task)

    @invariant()
    def strangers_are_never_touched(self) -> None:
        assert all(job.status == "RUNNING" for job in self.strangers)


World.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestWorld = World.TestCase
