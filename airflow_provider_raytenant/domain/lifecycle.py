"""A job's life as a state machine: what was seen goes in, what to do next comes out.

It is pure: times are handed in (monotonic seconds), nothing is asked or waited for here. Whoever drives it
does each step, tells what came of it, and gets the next one, until there is an :class:`End`. Because a job is
found by its computed id, a driver may vanish at any moment, and another begin anew with a machine of its own.

    Submit -> Look ... Look -> End
                 |-> CheckSupervisor (the record says RUNNING: does anything run?) -> Wake -> End
                 |-> Stop ... Stop (a deadline has passed) -> End
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobLostError,
    JobStartTimeoutError,
    JobTimeoutError,
    RayTenantError,
)

OUTAGE_BUDGET: Final = 600.0
"""Seconds of a dashboard without sound answers after which the wait is given up (retryable)."""

QUEUE_TIMEOUT: Final = 840.0
"""Seconds that a job may wait in Ray: less than Ray's own 900 s, after which the job is just FAILED."""

TIMEOUT_GRACE: Final = 60.0
"""Seconds that the runner has for keeping ``job_timeout`` itself before the job is stopped from outside."""

STOP_PATIENCE: Final = 60.0
"""Seconds for which a job whose deadline has passed is followed to its end."""

WAITING_STOP_PATIENCE: Final = 10.0
"""The same for one that waits in Ray and has lost its ticket: it can start nothing any more."""

UNKNOWN_FOR: Final = 3.0
"""Seconds for which Ray must not know a job that it took before the job counts as lost."""

CHECK_EVERY: Final = 30.0
"""Seconds between two checks of a running job's supervisor."""

SUSPECT_FOR: Final = 20.0
"""Seconds for which Ray gets to note by itself that a supervisor died. It takes 2 s for one that was killed
and 19 s for one whose node died (measured on 2.60)."""

WOKEN_FOR: Final = 30.0
"""Seconds for which Ray's job manager gets, once woken, to note it."""

_FIRST_DELAY: Final = 0.5
_STOP_DELAY: Final = 0.5
_SUSPECT_DELAY: Final = 5.0


@dataclass(frozen=True)
class Limits:
    """Deadlines and paces of one job, in seconds; ``None`` is no deadline.

    :param queue_timeout: time in Ray before the job runs.
    :param job_timeout: time that the entrypoint may run, which the runner keeps and this backs up.
    :param execution_timeout: the task's ``execution_timeout``, and ``execution_left``, what was left of it
        when the machine was made.
    :param outage_budget: time without a sound answer from Ray.
    :param poll_interval: longest time between two looks.
    """

    queue_timeout: float | None = QUEUE_TIMEOUT
    job_timeout: float | None = None
    execution_timeout: float | None = None
    execution_left: float | None = None
    outage_budget: float = OUTAGE_BUDGET
    poll_interval: float = 5.0

    @property
    def of_runner(self) -> tuple[str, float] | None:
        """The deadline that the runner keeps beside the process: its name and seconds.

        The task's ``execution_timeout`` is kept from outside, since its time began before the job's. The
        runner has it too, for the case that nobody is there to keep it.
        """
        known = {"job_timeout": self.job_timeout, "execution_timeout": self.execution_timeout}
        given = [(seconds, name) for name, seconds in known.items() if seconds is not None]
        return None if not given else (min(given)[1], min(given)[0])


@dataclass(frozen=True)
class Submit:
    """Submit the job, or find it, after so many seconds."""

    after: float = 0.0


@dataclass(frozen=True)
class Look:
    """Read the job's record, in so many seconds."""

    after: float


@dataclass(frozen=True)
class Stop:
    """Stop the job and read its record, after so many seconds."""

    after: float = 0.0


@dataclass(frozen=True)
class CheckSupervisor:
    """Find out whether the job's supervisor lives."""


@dataclass(frozen=True)
class Wake:
    """Ask Ray to stop the job, whose supervisor is dead: that wakes Ray's job manager."""


@dataclass(frozen=True)
class End:
    """The end: by the job's last record, or by an error that stands above it."""

    job: JobInfo | None = None
    error: RayTenantError | None = None


Step = Submit | Look | Stop | CheckSupervisor | Wake | End


class Lifecycle:
    """The machine of one job. ``notes`` collects what is worth a line in the task's log."""

    def __init__(self, submission_id: str, limits: Limits, now: float) -> None:
        self.submission_id = submission_id
        self.notes: list[str] = []
        self._limits = limits
        self._began = now
        self._known = False
        self._job: JobInfo | None = None
        self._waits_since = now
        self._runs_since: float | None = None
        self._outage_since: float | None = None
        self._unknown_since: float | None = None
        self._checked = now
        self._suspect_since: float | None = None
        self._woken: float | None = None
        self._deadline: RayTenantError | None = None
        self._stopping_since = 0.0
        left = limits.execution_left
        self._execution_ends = None if left is None else now + left

    def begin(self, *, there: bool = False) -> Step:
        """The first step; ``there``: the job was submitted by somebody else, and is only followed."""
        self._known = there
        return Look(0.0) if there else Submit()

    def submitted(self, created: bool, now: float) -> Step:
        """Ray has the job: by this submit, or it had it already."""
        self._answered()
        self._known = True
        self._waits_since = now
        self._note(f"Job {self.submission_id} {'submitted' if created else 'found, following it'}.")
        return Look(_FIRST_DELAY if created else 0.0)

    def saw(self, job: JobInfo, now: float, *, age: float = 0.0, cannot_start: bool = False) -> Step:
        """The job's record.

        :param age: seconds since the submit at least, as far as it is known.
        :param cannot_start: the job has lost its ticket.
        """
        self._answered()
        self._unknown_since = None
        self._waits_since = min(self._waits_since, now - age)
        if self._job is None or self._job.status is not job.status:
            self._note(f"Job {self.submission_id} is {job.status.value}{_place(job)}.")
        self._job = job
        if job.status.is_terminal:
            return self._terminal(job, now)
        if job.status is JobStatus.RUNNING and self._runs_since is None:
            self._runs_since = self._checked = now
        self._keep_deadlines(now)
        if self._deadline is not None:
            return self._stop_or_give_up(now, cannot_start)
        return self._look_or_check(job, now)

    def unknown(self, now: float) -> Step:
        """Ray answers, and does not know the job."""
        self._answered()
        if self._deadline is not None:
            return End(self._job, self._deadline)
        if self._unknown_since is None:
            self._unknown_since = now
        if now - self._unknown_since >= UNKNOWN_FOR:
            text = f"Ray no longer knows job {self.submission_id}; was its head restarted?"
            return End(None, JobLostError(text, lost="record"))
        return Look(1.0)

    def outage(self, error: RayTenantError, now: float) -> Step:
        """No sound answer to whatever was tried."""
        budget = self._limits.outage_budget
        if self._outage_since is None:
            self._outage_since = now
            self._note(f"{error}. Trying for {budget:g} s; the job is not affected.")
        if now - self._outage_since > budget:
            if self._deadline is not None:
                return End(None, _told(self._deadline, f"could not be stopped: {error}"))
            return End(None, error)
        if self._known:
            self._keep_deadlines(now)
        delay = outage_pause(now - self._outage_since)
        if not self._known:
            return Submit(delay)
        return Look(delay) if self._deadline is None else Stop(delay)

    def supervisor(self, lives: bool | None, now: float) -> Step:
        """Whether the supervisor of the job, which is RUNNING by its record, lives.

        ``None``: it cannot be found out just now, which is no reason to doubt the record, nor to trust it.
        """
        self._checked = now
        if lives is None:
            return self._next_look(now)
        if lives:
            self._suspect_since = self._woken = None
            return self._next_look(now)
        if self._suspect_since is None:
            self._suspect_since = now
        if now - self._suspect_since < SUSPECT_FOR:
            return Look(_SUSPECT_DELAY)
        if self._woken is None:
            self._woken = now
            self._note(
                f"Ray says that job {self.submission_id} runs, but its supervisor is dead; asking it to look."
            )
            return Wake()
        if now - self._woken < WOKEN_FOR:
            return Look(_SUSPECT_DELAY)
        text = f"job {self.submission_id} is RUNNING by Ray's record, but its supervisor is dead"
        return End(None, JobLostError(text, lost="supervisor"))

    def _answered(self) -> None:
        if self._outage_since is not None:
            self._outage_since = None
            self._note("Ray answers again.")

    def _terminal(self, job: JobInfo, now: float) -> Step:
        if job.status is JobStatus.STOPPED and self._deadline is None:
            # Another driver may have been about a deadline, and vanished.
            if self._execution_over(now):
                self._deadline = self._execution_error()
            elif self._queue_over(now):
                self._deadline = self._queue_error()
        # A job that was done before its stop arrived is done.
        if self._deadline is not None and job.status is not JobStatus.SUCCEEDED:
            return End(job, _told(self._deadline, "was stopped"))
        return End(job)

    def _keep_deadlines(self, now: float) -> None:
        if self._deadline is not None:
            return
        limits, name = self._limits, self.submission_id
        if self._execution_over(now):
            self._deadline = self._execution_error()
        elif self._queue_over(now):
            self._deadline = self._queue_error()
        elif (
            self._runs_since is not None
            and limits.job_timeout is not None
            and now - self._runs_since >= limits.job_timeout + TIMEOUT_GRACE
        ):
            self._deadline = JobTimeoutError(
                f"job {name} ran longer than its job_timeout of {limits.job_timeout:g} s",
                deadline="job_timeout",
                seconds=limits.job_timeout,
            )
        if self._deadline is not None:
            self._stopping_since = now
            self._note(f"{self._deadline}: stopping it.")

    def _execution_over(self, now: float) -> bool:
        return self._execution_ends is not None and now >= self._execution_ends

    def _queue_over(self, now: float) -> bool:
        limit = self._limits.queue_timeout
        return self._runs_since is None and limit is not None and now - self._waits_since >= limit

    def _queue_error(self) -> JobStartTimeoutError:
        seconds = self._limits.queue_timeout or 0.0
        return JobStartTimeoutError(
            f"job {self.submission_id} waited in Ray for longer than its queue_timeout of {seconds:g} s",
            deadline="queue_timeout",
            seconds=seconds,
        )

    def _execution_error(self) -> JobTimeoutError:
        total = self._limits.execution_timeout or self._limits.execution_left or 0.0
        return JobTimeoutError(
            f"job {self.submission_id} outlived its task's execution_timeout of {total:g} s",
            deadline="execution_timeout",
            seconds=total,
        )

    def _stop_or_give_up(self, now: float, cannot_start: bool) -> Step:
        if self._deadline is None:
            raise RuntimeError("nothing is to be stopped")
        stopping = now - self._stopping_since
        if cannot_start and stopping >= WAITING_STOP_PATIENCE:
            return End(None, _told(self._deadline, "will end without running when Ray gets to it"))
        if stopping >= STOP_PATIENCE:
            return End(None, _told(self._deadline, "was told to stop, but still lives"))
        return Stop(0.0 if stopping == 0 else _STOP_DELAY)

    def _look_or_check(self, job: JobInfo, now: float) -> Step:
        if job.status is JobStatus.RUNNING:
            every = _SUSPECT_DELAY if self._suspect_since is not None else CHECK_EVERY
            if now - self._checked >= every:
                return CheckSupervisor()
        return self._next_look(now)

    def _next_look(self, now: float) -> Look:
        """Often for a young job, seldom for an old one, in time for the next deadline."""
        wait = min(self._limits.poll_interval, max(_FIRST_DELAY, (now - self._began) / 10))
        ends = [self._execution_ends]
        if self._runs_since is None and self._limits.queue_timeout is not None:
            ends.append(self._waits_since + self._limits.queue_timeout)
        left = [end - now for end in ends if end is not None]
        return Look(min(wait, max(_FIRST_DELAY, min(left, default=wait))))

    def _note(self, text: str) -> None:
        self.notes.append(text)


def outage_pause(passed: float) -> float:
    """Seconds to the next attempt, so many seconds after the first one that had no sound answer."""
    return min(10.0, 1 + passed / 4)


def _told(deadline: RayTenantError, what: str) -> RayTenantError:
    return type(deadline)(f"{deadline.message}, and {what}", **deadline.details)


def _place(job: JobInfo) -> str:
    runs = job.status is JobStatus.RUNNING and job.driver_node_id
    return f" on node {job.driver_node_id[:12]}" if runs and job.driver_node_id else ""
