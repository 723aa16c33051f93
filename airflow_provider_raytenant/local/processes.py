"""Start services in the background and end all that they started.

A service is told apart by its process id together with the moment of its start, so that a process which
got the id of one that is long gone is never hurt. What a service starts inherits a mark in its
environment (``RAYTENANT_SERVICE``), which finds even those that left its process tree and its session. The
mark is not looked for in command lines: an editor that has a log file open has its path there too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_raytenant.local.errors import NotReady, ServiceDied, StopFailed

MARK = "RAYTENANT_SERVICE"
_KILL_TIMEOUT = 10.0
_TAIL_BYTES = 4_000

# Popen objects of this process's own children: they must be waited for, or they stay as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Service:
    """A service that was started: enough to find it again from another process.

    ``started`` is the start of the process in ticks since boot (Linux) or in seconds since 1970
    (elsewhere). ``stop_signal`` is the signal which asks this program to end in an orderly way.
    """

    name: str
    pid: int
    started: float
    mark: str
    log: Path
    stop_signal: int = signal.SIGTERM

    @property
    def running(self) -> bool:
        """Whether this very process still lives; a zombie does not."""
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return _started(self.pid) == self.started

    def tail(self) -> str:
        """The last 4000 bytes of the log."""
        return log_tail(self.log)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "log": str(self.log)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Service:
        return cls(**{**data, "log": Path(data["log"])})


def start_service(
    name: str,
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    scope: str | None = None,
    stop_signal: int = signal.SIGTERM,
    user: str | None = None,
) -> Service:
    """Start ``command`` in a session of its own, its output appended to ``log``.

    ``env`` is the whole environment (default: this process's own). ``scope`` is a name that several
    services share, for ``stop_scope``. ``user`` needs root. Raises ``OSError`` if it cannot be started.
    """
    mark = f"{scope or 'service'}/{name}-{uuid.uuid4().hex[:8]}"
    environment = {**(os.environ if env is None else env), **marked_environment(mark)}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    _children[process.pid] = process
    # A child that ended at once is a zombie here, which has no start: 0 stands for "not running".
    return Service(name, process.pid, _started(process.pid) or 0, mark, log, stop_signal)


def marked_environment(mark: str) -> dict[str, str]:
    """What a process needs in its environment to be found by ``stop_scope`` or by its service's end.

    ``SPT_NOENV`` keeps programs that set their own title from overwriting the environment in /proc.
    """
    return {MARK: mark, "SPT_NOENV": "1"}


def stop_service(service: Service, *, timeout: float = 10.0) -> None:
    """End one service and all that it started; see ``stop_services``."""
    stop_services([service], timeout=timeout)


def stop_services(services: Sequence[Service], *, timeout: float = 10.0) -> None:
    """Ask the services to end, wait ``timeout`` seconds at most, then kill what is left of them.

    Services that do not run any more are fine; what they left behind is killed all the same.
    Raises ``StopFailed`` if something survives SIGKILL.
    """
    marks = [service.mark for service in services]
    leaders = [service for service in services if service.running]
    # Who belongs to a service is only certain while its first process lives.
    members = set(_started_by(leaders))
    for service in leaders:
        _signal(service)
    deadline = time.monotonic() + timeout
    while any(service.running for service in leaders) and time.monotonic() < deadline:
        time.sleep(0.05)
    _kill_all(members, marks)


def kill_service(service: Service) -> None:
    """SIGKILL a service and all that it started at once, as when its machine dies; raises ``StopFailed``."""
    _kill_all(set(_started_by([service] if service.running else [])), [service.mark])


def stop_scope(scope: str) -> None:
    """Kill at once everything that was started under ``scope``; raises ``StopFailed``."""
    _kill_all(set(), [scope])


def scope_pids(scope: str) -> list[int]:
    """The ids of the live processes that were started under ``scope`` or carry this mark."""
    return sorted(process.pid for process in _marked([scope]))


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout: float,
    what: str,
    service: Service | None = None,
    interval: float = 0.1,
) -> None:
    """Return as soon as ``condition()`` holds; it is asked every ``interval`` seconds.

    Raises ``ServiceDied`` as soon as ``service`` has ended, ``NotReady`` after ``timeout`` seconds;
    both show the end of the service's log.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if service is not None and not service.running:
            raise ServiceDied(service.name, what, service.log, service.tail())
        if time.monotonic() >= deadline:
            raise NotReady(what, timeout, service.tail() if service else "")
        time.sleep(interval)


def log_tail(log: Path, size: int = _TAIL_BYTES) -> str:
    """The last ``size`` bytes of a log file; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _started(pid: int) -> float | None:
    """When the process began, None if it is gone or a zombie.

    On Linux from /proc, in ticks since boot: ``create_time()`` moves when the clock is set.
    """
    try:
        if psutil.LINUX:
            # The second field, the name in parentheses, may hold spaces and parentheses itself.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return None if fields[0] in "ZX" else float(fields[19])
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (OSError, psutil.Error):
        return None


def _signal(service: Service) -> None:
    with suppress(ProcessLookupError):
        os.kill(service.pid, service.stop_signal)


def _started_by(leaders: Iterable[Service]) -> Iterable[psutil.Process]:
    """The first processes, their descendants, and the members of their sessions."""
    sessions = {service.pid for service in leaders}
    for pid in sessions:
        try:
            process = psutil.Process(pid)
            yield process
            yield from process.children(recursive=True)
        except psutil.NoSuchProcess:
            continue
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in sessions:
                yield process
        except OSError:
            continue


def _marked(marks: Iterable[str]) -> set[psutil.Process]:
    """The processes with one of the marks, or with a mark below one of them, without this one."""
    exact = set(marks)
    below = tuple(f"{mark}/" for mark in exact)
    found = set()
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            continue
        if (mark in exact or mark.startswith(below)) and process.pid != os.getpid():
            found.add(process)
    return {process for process in found if _started(process.pid) is not None}


def _kill_all(members: set[psutil.Process], marks: Sequence[str]) -> None:
    deadline = time.monotonic() + _KILL_TIMEOUT
    while True:
        # Looked for anew each time: a process may have forked while it was being killed.
        left = {process for process in members | _marked(marks) if _lives(process)}
        if not left:
            return
        if time.monotonic() >= deadline:
            raise StopFailed(sorted(process.pid for process in left), _KILL_TIMEOUT)
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)


def _lives(process: psutil.Process) -> bool:
    child = _children.get(process.pid)
    if child is not None and child.poll() is not None:
        del _children[process.pid]
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
