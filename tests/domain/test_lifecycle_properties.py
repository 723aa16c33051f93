"""What holds for the life of a job whatever the dashboard says, and however often its trigger is replaced.

A world is made up: when the job starts, how and when it ends, when the dashboard is away, when Ray forgets
the job, whether its supervisor lives, and when the machine is thrown away and another begins. The machine is
driven through it on a clock of the test's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.lifecycle import (
    CHECK_EVERY,
    STOP_PATIENCE,
    SUSPECT_FOR,
    TIMEOUT_GRACE,
    UNKNOWN_FOR,
    WOKEN_FOR,
    CheckSupervisor,
    End,
    Lifecycle,
    Limits,
    Look,
    Step,
    Stop,
    Submit,
    Wake,
)
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobLostError,
    JobStartTimeoutError,
    JobTimeoutError,
    RayUnavailableError,
)

HORIZON = 3000.0
ENDS = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED)


@dataclass
class World:
    """A made-up Ray, and the job in it once it was submitted. Times in seconds."""

    starts_after: float
    runs_for: float
    ends: JobStatus
    outages: list[tuple[float, float]]
    forgets_at: float
    supervisor_dies_at: float
    obeys: bool
    submitted_at: float | None = None
    submits: int = 0
    stopped_at: float | None = None

    def away(self, now: float) -> bool:
        return any(begin <= now < begin + length for begin, length in self.outages)

    def submit(self, now: float) -> bool:
        if self.submitted_at is not None:
            return False
        self.submitted_at = now
        self.submits += 1
        return True

    def status(self, now: float) -> JobStatus | None:
        """The status by the record; a job whose supervisor died is frozen."""
        if self.submitted_at is None or now >= self.forgets_at:
            return None
        now = min(now, max(self.supervisor_dies_at, self.submitted_at))
        start = self.submitted_at + self.starts_after
        if self.stopped_at is not None and self.obeys and now >= max(self.stopped_at, start):
            return JobStatus.STOPPED
        if now < start:
            return JobStatus.PENDING
        return JobStatus.RUNNING if now < start + self.runs_for else self.ends


outages = st.lists(st.tuples(st.floats(0, 500), st.floats(0, 120)), max_size=4)
never = st.just(HORIZON * 2)
worlds = st.builds(
    World,
    starts_after=st.floats(0, 300),
    runs_for=st.floats(0, 600),
    ends=st.sampled_from(ENDS),
    outages=outages,
    forgets_at=never,
    supervisor_dies_at=never,
    obeys=st.just(True),
)
replacements = st.lists(st.floats(1, 400), max_size=5)


def drive(world: World, limits: Limits, replaced: list[float]) -> tuple[End, float, list[Step]]:
    """The end, when it came, and the steps of all machines together."""
    now, steps = 0.0, []
    replaced = sorted(replaced)
    began = now
    life = Lifecycle("j", limits, now)
    step = life.begin()
    while now < HORIZON:
        steps.append(step)
        if isinstance(step, End):
            return step, now, steps
        if replaced and now >= replaced[0]:
            replaced.pop(0)
            left = None if limits.execution_left is None else limits.execution_left - (now - began)
            life = Lifecycle("j", replace(limits, execution_left=left), now)
            step = life.begin()
            continue
        now += getattr(step, "after", 0.0) + 0.01
        step = advance(life, step, world, now)
    raise AssertionError(f"no end within {HORIZON} s; the last step was {steps[-1]}")


def advance(life: Lifecycle, step: Step, world: World, now: float) -> Step:
    if world.away(now):
        if isinstance(step, CheckSupervisor):
            return life.supervisor(True, now)
        return life.outage(RayUnavailableError("away"), now)
    if isinstance(step, Submit):
        return life.submitted(world.submit(now), now)
    if isinstance(step, CheckSupervisor):
        return life.supervisor(now < world.supervisor_dies_at, now)
    if isinstance(step, Stop) and world.stopped_at is None:
        world.stopped_at = now
    status = world.status(now)
    if status is None:
        return life.unknown(now)
    age = now - (world.submitted_at or now)
    waits = status is JobStatus.PENDING and isinstance(step, Stop)
    return life.saw(JobInfo("j", status), now, age=age, cannot_start=waits)


@settings(max_examples=150, deadline=None)
@given(worlds, replacements)
def test_without_deadlines_the_outcome_is_the_jobs_own(world: World, replaced: list[float]) -> None:
    limits = Limits(queue_timeout=None, outage_budget=10_000)
    end, _, steps = drive(world, limits, replaced)
    assert end.error is None
    assert end.job is not None
    assert end.job.status is world.ends
    assert world.submits == 1
    assert not [step for step in steps if isinstance(step, (Stop, Wake))]


@settings(max_examples=150, deadline=None)
@given(worlds, replacements, st.floats(1, 400), st.floats(1, 400), st.floats(1, 400))
def test_a_deadline_ends_the_job_and_names_itself(
    world: World, replaced: list[float], queue: float, job: float, execution: float
) -> None:
    limits = Limits(
        queue_timeout=queue,
        job_timeout=job,
        execution_timeout=execution,
        execution_left=execution,
        outage_budget=10_000,
    )
    end, when, steps = drive(world, limits, replaced)
    stops = [step for step in steps if isinstance(step, Stop)]
    assert world.submits <= 1
    if end.error is None:
        assert end.job is not None
        # Stopped without a name: the machine that wanted it was replaced before it saw it happen.
        assert end.job.status is world.ends or (end.job.status is JobStatus.STOPPED and stops)
        return
    assert isinstance(end.error, (JobTimeoutError, JobStartTimeoutError))
    assert stops or world.ends is JobStatus.STOPPED
    name = end.error.details["deadline"]
    at_least = {"queue_timeout": queue, "job_timeout": job + TIMEOUT_GRACE, "execution_timeout": execution}
    assert when + 0.1 >= at_least[name]


@settings(max_examples=80, deadline=None)
@given(worlds, replacements, st.floats(10, 300))
def test_a_job_that_ray_forgets_is_lost_and_never_submitted_again(
    world: World, replaced: list[float], forgets_at: float
) -> None:
    world.forgets_at, world.starts_after = forgets_at, 1000.0
    # A machine that begins after the loss has no way to know: its submit finds the ticket gone.
    replaced = [moment for moment in replaced if moment < forgets_at - 1]
    world.outages = []
    end, when, steps = drive(world, Limits(queue_timeout=None), replaced)
    assert isinstance(end.error, JobLostError)
    assert world.submits == 1
    assert when >= forgets_at + UNKNOWN_FOR
    assert not [step for step in steps if isinstance(step, Stop)]


@settings(max_examples=80, deadline=None)
@given(worlds, st.floats(0, 500))
def test_a_record_that_says_running_for_ever_is_found_out(world: World, dies_after: float) -> None:
    world.outages, world.starts_after, world.runs_for = [], 0.0, 10_000.0
    world.supervisor_dies_at = dies_after
    end, when, steps = drive(world, Limits(), [])
    assert isinstance(end.error, JobLostError)
    assert end.error.details["lost"] == "supervisor"
    assert sum(isinstance(step, Wake) for step in steps) == 1
    assert when < dies_after + CHECK_EVERY + SUSPECT_FOR + WOKEN_FOR + 30


@settings(max_examples=80, deadline=None)
@given(worlds, replacements, st.floats(1, 300))
def test_a_job_that_does_not_obey_is_given_up_in_bounded_time(
    world: World, replaced: list[float], execution: float
) -> None:
    world.obeys, world.runs_for, world.outages = False, 10_000.0, []
    limits = Limits(queue_timeout=None, execution_timeout=execution, execution_left=execution)
    end, when, _ = drive(world, limits, [moment for moment in replaced if moment < execution])
    assert isinstance(end.error, JobTimeoutError)
    assert when <= execution + STOP_PATIENCE + 15


@settings(max_examples=80, deadline=None)
@given(worlds, st.floats(1, 100))
def test_an_outage_ends_a_watch_only_when_its_budget_is_used_up(world: World, budget: float) -> None:
    end, when, _ = drive(world, Limits(queue_timeout=None, outage_budget=budget), [])
    if isinstance(end.error, RayUnavailableError):
        assert world.away(when)
        assert any(begin <= when - budget for begin, _ in world.outages)
    else:
        assert end.job is not None
        assert end.job.status is world.ends


def test_every_step_of_the_machine_occurs_in_these_worlds() -> None:
    """The properties above would hold for a machine that never does anything, too."""
    world = World(5, 10_000, JobStatus.SUCCEEDED, [(20, 30)], HORIZON * 2, 100, False)
    _, _, steps = drive(world, Limits(), [10.0])
    assert {type(step) for step in steps} == {Submit, Look, CheckSupervisor, Wake, End}
    world = World(5, 10_000, JobStatus.SUCCEEDED, [], HORIZON * 2, HORIZON * 2, True)
    _, _, steps = drive(world, Limits(execution_left=50), [])
    assert Stop in {type(step) for step in steps}
