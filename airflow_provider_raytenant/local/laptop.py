"""Ray and S3 on a laptop: ``up``, ``down`` and ``status``, each one function.

Services outlive the process that starts them; the state file in the directory finds them again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_raytenant.local.processes import scope_pids, stop_scope, stop_services
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.local.s3_server import S3Server
from airflow_provider_raytenant.local.state import (
    LocalState,
    locked,
    read_state,
    remove_state,
    write_state,
)

DEFAULT_DIRECTORY = Path("~/.raytenant/local")
DEFAULT_MEMORY = 4 * 1024**3


@dataclass(frozen=True)
class LocalStack:
    """What is up. ``already_running`` says that an earlier ``up`` started it, with its own sizes."""

    directory: Path
    ray: RayCluster
    s3: S3Server | None
    already_running: bool = False


@dataclass(frozen=True)
class LocalStatus:
    """What is really there, not what was once started.

    ``dashboard_url`` and ``s3_url`` are None where nothing was started; ``nodes`` are the names of the
    nodes Ray holds for alive; ``pids`` are all processes of the stack.
    """

    directory: Path
    dashboard_url: str | None = None
    dashboard_answers: bool = False
    nodes: tuple[str, ...] = ()
    s3_url: str | None = None
    s3_answers: bool = False
    pids: tuple[int, ...] = ()

    @property
    def up(self) -> bool:
        """Whether all that was started answers."""
        return self.dashboard_answers and (self.s3_url is None or self.s3_answers)


@dataclass(frozen=True)
class Stopped:
    """What ``down`` ended; ``was_up`` is False if there was nothing. Data and logs stay where they are."""

    directory: Path
    was_up: bool


def up(
    directory: Path = DEFAULT_DIRECTORY,
    cpus: float | None = None,
    memory: int = DEFAULT_MEMORY,
    ray_binary: Path | None = None,
    token: str | None = None,
    with_s3: bool = True,
    *,
    progress: Callable[[str], None] = lambda text: None,
) -> LocalStack:
    """Start Ray, and S3 before it, unless they are up already; what is up but broken is replaced.

    ``cpus`` are logical (default: those of this machine), ``memory`` is in bytes. With S3, its
    administrator's keys are the Ray nodes' own credentials. ``progress`` is told what is being done.
    Raises an error of ``local.errors``, or ``OSError``; nothing is left running then.
    """
    directory = directory.expanduser().absolute()
    with locked(directory):
        state = read_state(directory)
        if state is not None:
            if state.ray is not None and state.ray.running and (state.s3 is None or state.s3.running):
                return LocalStack(directory, state.ray, state.s3, already_running=True)
            progress("Ending what an earlier start left behind")
            _end(directory, state)
        scope = f"local-{uuid.uuid4().hex[:8]}"
        state = LocalState(scope)
        write_state(directory, state)
        try:
            s3 = None
            if with_s3:
                progress("Starting S3")
                s3 = S3Server.start(directory / "s3", scope=scope)
                state = LocalState(scope, None, s3)
                write_state(directory, state)
            progress("Starting Ray")
            ray = RayCluster.start(
                directory / "ray",
                cpus or os.cpu_count() or 1,
                memory,
                ray_binary,
                token,
                s3.environment() if s3 else None,
                scope=scope,
            )
            state = LocalState(scope, ray, s3)
            write_state(directory, state)
        except BaseException:
            _end(directory, state)
            raise
        return LocalStack(directory, ray, s3)


def down(directory: Path = DEFAULT_DIRECTORY) -> Stopped:
    """End all that ``up`` started in ``directory``; fine if nothing is up. Raises ``StopFailed``."""
    directory = directory.expanduser().absolute()
    if not directory.is_dir():
        return Stopped(directory, was_up=False)
    with locked(directory):
        state = read_state(directory)
        if state is None:
            return Stopped(directory, was_up=False)
        was_up = bool(scope_pids(state.scope))
        _end(directory, state)
        return Stopped(directory, was_up)


def status(directory: Path = DEFAULT_DIRECTORY) -> LocalStatus:
    """Look at what is up in ``directory``: processes, dashboard, nodes, S3."""
    directory = directory.expanduser().absolute()
    state = read_state(directory)
    if state is None:
        return LocalStatus(directory)
    ray, s3 = state.ray, state.s3
    answers = ray is not None and ray.running
    return LocalStatus(
        directory,
        dashboard_url=ray.dashboard_url if ray else None,
        dashboard_answers=answers,
        nodes=tuple(sorted(ray.alive_nodes())) if ray and answers else (),
        s3_url=s3.endpoint_url if s3 else None,
        s3_answers=s3 is not None and s3.running,
        pids=tuple(scope_pids(state.scope)),
    )


def _end(directory: Path, state: LocalState) -> None:
    services = [node.service for node in state.ray.nodes] if state.ray else []
    if state.s3 is not None:
        services.append(state.s3.service)
    # All at once: each takes some seconds to end.
    stop_services(services)
    if state.ray is not None:
        state.ray.stop()
    if state.s3 is not None:
        state.s3.stop()
    stop_scope(state.scope)
    remove_state(directory)
