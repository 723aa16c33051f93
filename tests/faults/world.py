"""What the fault tests see of the world: Airflow's tasks, Ray's jobs, and what the jobs counted."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import psycopg2

from airflow_provider_raytenant.local.errors import RequestRefused
from stack.fault_proxy import FaultProxy
from stack.rest import AirflowApi
from stack.stack import Stack
from tests.faults.report import Report

LIVE_TASK = frozenset({"queued", "running", "deferred", "restarting"})
LIVE_JOB = frozenset({"PENDING", "RUNNING"})
ENDED_TASK = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})

_TASKS = """
    select ti.dag_id, ti.run_id, ti.task_id, ti.id::text, ti.state, ti.try_number, ti.trigger_id,
           trigger.triggerer_id
    from task_instance ti left join trigger on trigger.id = ti.trigger_id
"""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Task:
    """A task instance as Airflow's database has it."""

    dag_id: str
    run_id: str
    task_id: str
    ti_id: str
    state: str | None
    try_number: int
    trigger_id: int | None
    triggerer_id: int | None


class World:
    """Looks at Airflow's database and at Ray directly, a few times a second however many ask."""

    def __init__(self, stack: Stack, counts: Path) -> None:
        self.stack = stack
        self.counts = counts
        self.report = Report()
        self._database = psycopg2.connect(stack.postgres.url.replace("+psycopg2", ""))
        self._database.autocommit = True
        self._lock = threading.Lock()
        self._tasks = _Cached(0.25, self._read_tasks)
        self._jobs = _Cached(0.5, lambda: list(stack.ray.api("GET", "/api/jobs/", timeout=10)))

    @property
    def api(self) -> AirflowApi:
        """A client of one's own: it is not shared by threads."""
        return self.stack.airflow.api()

    @property
    def proxy(self) -> FaultProxy:
        return self.stack.proxy

    def close(self) -> None:
        self._database.close()

    def tasks(self) -> list[Task]:
        return self._tasks.get()

    def jobs(self) -> list[dict[str, Any]]:
        """Ray's records of jobs of ours; raises ``OSError`` or ``RequestRefused`` where Ray is away."""
        return [job for job in self._jobs.get() if "raytenant.run_id" in (job["metadata"] or {})]

    def triggerers(self) -> set[int]:
        """The ids of the triggerers that hold triggers."""
        return {task.triggerer_id for task in self.tasks() if task.triggerer_id is not None}

    def heartbeats(self) -> dict[int, datetime]:
        """When each triggerer that ever was last showed a sign of life, by its id."""
        with self._lock, self._database.cursor() as cursor:
            cursor.execute("select id, latest_heartbeat from job where job_type = 'TriggererJob'")
            return dict(cursor.fetchall())

    def strays(self) -> list[str]:
        """Live jobs of ours whose task instance is not queued, running or deferred."""
        live = {task.ti_id for task in self.tasks() if task.state in LIVE_TASK}
        return [
            job["submission_id"]
            for job in self.jobs()
            if job["status"] in LIVE_JOB and job["metadata"]["raytenant.ti_id"] not in live
        ]

    def _read_tasks(self) -> list[Task]:
        with self._lock, self._database.cursor() as cursor:
            cursor.execute(_TASKS)
            return [Task(*row) for row in cursor.fetchall()]


class _Cached:
    """What a question answered at most ``age`` seconds ago."""

    def __init__(self, age: float, ask: Callable[[], Any]) -> None:
        self._age, self._ask = age, ask
        self._lock = threading.Lock()
        self._at = float("-inf")
        self._value: Any = None

    def get(self) -> Any:
        with self._lock:
            if time.monotonic() - self._at > self._age:
                self._value = self._ask()
                self._at = time.monotonic()
            return self._value


class Run:
    """One run of one of the suite's DAGs: what it must come to, and what became of it.

    ``ends`` is the state that its task must have in the end, ``"gone"`` where it must not be there any more;
    ``starts`` are the allowed numbers of starts of the entrypoint.
    """

    def __init__(self, world: World, name: str, dag_id: str, conf: Mapping[str, Any] | None = None) -> None:
        self.world = world
        self.name = name
        self.dag_id = dag_id
        self.ends = "success"
        self.starts: tuple[int, ...] = (1,)
        self.tries = 0
        self.run_id = world.api.trigger_run(dag_id, conf={"run": name, **(conf or {})})

    # --- what can be seen ----------------------------------------------------------------------------

    def task(self) -> Task | None:
        for task in self.world.tasks():
            if (task.dag_id, task.run_id, task.task_id) == (self.dag_id, self.run_id, "job"):
                self.tries = max(self.tries, task.try_number)
                return task
        return None

    @property
    def state(self) -> str | None:
        task = self.task()
        return "gone" if task is None else task.state

    def jobs(self) -> list[dict[str, Any]]:
        """The Ray jobs of this run, the oldest first."""
        own = [
            job
            for job in self.world.jobs()
            if (job["metadata"]["raytenant.dag_id"], job["metadata"]["raytenant.run_id"])
            == (self.dag_id, self.run_id)
        ]
        return sorted(own, key=lambda job: job["start_time"])

    def started(self) -> list[str]:
        """The submission ids with which the entrypoint started, a start each."""
        return [words[1] for words in self._counted("start")]

    def overlaps(self) -> int:
        """How many starts found an earlier one still alive."""
        return len(self._counted("overlap"))

    def pids(self) -> list[int]:
        """The processes of the entrypoint that live."""
        return [pid for words in self._counted("start") if lives(pid := int(words[2]))]

    def _counted(self, what: str) -> list[list[str]]:
        file = self.world.counts / self.name
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split() for line in lines if line.startswith(f"{what} ")]

    # --- what can be done and waited for -------------------------------------------------------------

    def release(self) -> None:
        """Let the job come to its end, now and after every later start."""
        (self.world.counts / f"{self.name}.go").touch()

    def wait_state(self, *states: str | None, timeout: float = 90.0) -> None:
        until(lambda: self.state in states, f"{self.name} {states}", timeout, lambda: f"it is {self.state}")

    def wait_started(self, times: int = 1, timeout: float = 90.0) -> None:
        """Wait until the entrypoint has started so often."""
        until(
            lambda: len(self.started()) >= times,
            f"start {times} of {self.name}",
            timeout,
            lambda: self.told(),
        )

    def wait_try(self, number: int, timeout: float = 90.0) -> None:
        """Wait until this try runs."""

        def runs() -> bool:
            task = self.task()
            return task is not None and task.try_number == number and task.state in ("running", "deferred")

        until(runs, f"try {number} of {self.name}", timeout, self.told)

    def wait_stopped(self, timeout: float = 60.0) -> None:
        """Wait until no process of the entrypoint lives and Ray holds every job for ended."""
        until(
            lambda: not self.pids() and not any(job["status"] in LIVE_JOB for job in self.jobs()),
            f"the end of the jobs of {self.name}",
            timeout,
            self.told,
        )

    def log(self, try_number: int = 1) -> str:
        return self.world.api.task_log(self.dag_id, self.run_id, "job", try_number)

    def lines(self, try_number: int = 1) -> list[int]:
        """The numbers of the lines of the job's output in the task's log, in its order."""
        log = self.log(try_number)
        return [int(number) for number in re.findall(r"^line (\d+)$", log, re.MULTILINE)]

    def printed(self) -> list[int]:
        """How many lines each start that came to its end had printed."""
        return [int(words[2]) for words in self._counted("end")]

    def told(self) -> str:
        """All that is known, for an error's text."""
        try:
            jobs = [(job["submission_id"], job["status"]) for job in self.jobs()]
        except (OSError, RequestRefused) as error:
            jobs = [("Ray is away", str(error))]
        return f"task {self.task()}, jobs {jobs}, started {self.started()}, alive {self.pids()}"

    # --- the verdict ---------------------------------------------------------------------------------

    def orphans(self) -> int:
        """Live jobs whose task is not live, and live processes that no live job accounts for."""
        task = self.task()
        wanted = {task.ti_id} if task is not None and task.state in LIVE_TASK else set()
        live = [job for job in self.jobs() if job["status"] in LIVE_JOB]
        stray = [job for job in live if job["metadata"]["raytenant.ti_id"] not in wanted]
        return max(len(stray), len(self.pids()) - (len(live) - len(stray)))

    def is_settled(self) -> bool:
        """Whether the task is what it must be and nothing of it is left behind."""
        return self.state == self.ends and not self.orphans() and not self.pids()


def lives(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(
    condition: Callable[[], _T],
    what: str,
    timeout: float = 60.0,
    explain: Callable[[], str] = lambda: "",
) -> _T:
    """Wait for something true and return it; a Ray that is away is not it."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            found = condition()
        except (OSError, RequestRefused) as error:
            found, trouble = None, str(error)
        else:
            trouble = ""
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what} did not come about within {timeout:g} s: {explain()} {trouble}")
        time.sleep(0.2)
