"""Airflow's four processes with settings of their own, on a database that is already there."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_provider_raytenant.local import ports
from airflow_provider_raytenant.local.http import request
from airflow_provider_raytenant.local.processes import (
    Service,
    marked_environment,
    scope_pids,
    start_service,
    stop_services,
    wait_until,
)
from airflow_provider_raytenant.local.programs import find_program, inherited_environment
from stack.rest import AirflowApi

PROCESSES = ("api-server", "scheduler", "dag-processor", "triggerer")
CONTROLLER = "raytenant-controller"
SECOND_TRIGGERER = "triggerer-2"
USER = "admin"
_COMMANDS = {CONTROLLER: ("raytenant", "controller"), SECOND_TRIGGERER: ("triggerer",)}
_HEALTH_KEYS = {"api-server": "metadatabase", "dag-processor": "dag_processor"}

# Fast enough for tests, calm enough for two cores; see the measured facts on heartbeats.
_DEFAULTS = {
    "core.executor": "LocalExecutor",
    # LocalExecutor forks a process for each task it may run at once.
    "core.parallelism": "8",
    "core.load_examples": "False",
    "core.min_serialized_dag_update_interval": "5",
    "api.workers": "1",
    "scheduler.max_tis_per_query": "64",
    "scheduler.scheduler_heartbeat_sec": "1",
    "scheduler.scheduler_idle_sleep_time": "1",
    "scheduler.task_instance_heartbeat_timeout": "20",
    "scheduler.task_instance_heartbeat_timeout_detection_interval": "5",
    "workers.min_heartbeat_interval": "1",
    "triggerer.job_heartbeat_sec": "2",
    "dag_processor.refresh_interval": "5",
    "dag_processor.print_stats_interval": "0",
    "usage_data_collection.enabled": "False",
}


class AirflowStack:
    """api-server, scheduler, dag-processor and triggerer of one deployment; a context manager.

    Entering it migrates the database and starts all four; leaving it ends every process of theirs.
    ``config`` overrides settings, keys are ``section.option``; ``extra_env`` is added to the environment
    of all processes and of ``cli``. Everything is written below ``directory``. Two more processes can be
    started, ended and killed like the four, but are not by themselves: ``CONTROLLER`` and
    ``SECOND_TRIGGERER``.
    """

    def __init__(
        self,
        directory: Path,
        dags_folder: Path,
        database_url: str,
        config: Mapping[str, str] | None = None,
        *,
        extra_env: Mapping[str, str] | None = None,
        airflow_binary: Path | None = None,
        scope: str | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.home = self.directory / "home"
        self.dags_folder = dags_folder.absolute()
        self.user = USER
        self.password = secrets.token_urlsafe(12)
        self.scope = scope
        self.services: dict[str, Service] = {}
        self._started_at: dict[str, datetime] = {}
        self._program = (airflow_binary or find_program("airflow", "install apache-airflow")).absolute()
        self._extra_env = dict(extra_env or {})
        self.port, worker_logs, trigger_logs = ports.free_ports(3)
        own = {
            "core.dags_folder": str(self.dags_folder),
            "core.fernet_key": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "core.execution_api_server_url": f"{self.base_url}/execution/",
            "core.simple_auth_manager_users": f"{USER}:admin",
            "core.simple_auth_manager_passwords_file": str(self._passwords_file),
            "database.sql_alchemy_conn": database_url,
            "api.host": "127.0.0.1",
            "api.port": str(self.port),
            "api.base_url": self.base_url,
            "api.secret_key": secrets.token_hex(32),
            "api_auth.jwt_secret": secrets.token_hex(32),
            "logging.worker_log_server_port": str(worker_logs),
            "logging.trigger_log_server_port": str(trigger_logs),
            "dag_processor.dag_bundle_storage_path": str(self.home / "bundles"),
        }
        self.config = {**_DEFAULTS, **own, **(config or {})}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of this deployment's processes, for programs that belong to it.

        Airflow's settings of the caller's own environment are not in it.
        """
        settings = {_variable(key): value for key, value in self.config.items()}
        return inherited_environment(
            {"AIRFLOW_HOME": str(self.home), **settings, **self._extra_env},
            path_first=self._program.parent,
            drop_prefixes=("AIRFLOW",),
        )

    def add_env(self, extra: Mapping[str, str]) -> None:
        """Add to the environment of all that is started from now on."""
        self._extra_env.update(extra)

    def api(self) -> AirflowApi:
        """A client of this deployment's REST API, as its administrator."""
        return AirflowApi(self.base_url, self.user, self.password)

    def cli(self, *args: str, timeout: float = 120.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``airflow ARGS``; output is captured, apart. ``check``: see ``subprocess.run``."""
        mark = marked_environment(f"{self.scope or 'service'}/airflow-cli")
        return subprocess.run(
            [str(self._program), *args],
            env={**self.env, **mark},
            cwd=self.home,
            check=check,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def prepare(self) -> None:
        """Make the folders, the passwords file and the database's tables.

        Raises ``subprocess.CalledProcessError``; its ``stderr`` has Airflow's words.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        self._passwords_file.touch(mode=0o600)
        self._passwords_file.write_text(json.dumps({self.user: self.password}))
        self.cli("db", "migrate")

    def start(self, timeout: float = 120.0) -> None:
        """Start the four processes and return when all are healthy.

        Raises ``ServiceDied`` or ``NotReady`` (after ``timeout`` seconds); nothing is left running then.
        """
        try:
            for name in PROCESSES:
                self._start(name)
            for name in PROCESSES:
                self.wait_healthy(name, timeout)
        except BaseException:
            self.stop(timeout=0.0)
            raise

    def health(self) -> dict[str, str]:
        """The state of each of the four as ``/api/v2/monitor/health`` tells it; all "down" if mute.

        Airflow judges by heartbeats: a process that was killed stays "healthy" for some 30 s.
        """
        told = self._health()
        return {
            name: told.get(_HEALTH_KEYS.get(name, name), {}).get("status") or "down" for name in PROCESSES
        }

    def wait_healthy(self, name: str, timeout: float = 120.0) -> None:
        """Wait until one of the four is healthy and has shown a sign of life since it was started here.

        See ``wait_until`` for the errors.
        """

        def healthy() -> bool:
            key = _HEALTH_KEYS.get(name, name)
            told = self._health().get(key, {})
            if told.get("status") != "healthy":
                return False
            if name == "api-server":  # it has no heartbeat: its answer is the sign of life
                return True
            heartbeat = told.get(f"latest_{key}_heartbeat")
            return heartbeat is not None and datetime.fromisoformat(heartbeat) >= self._started_at[name]

        what = f"Airflow's {name}"
        wait_until(healthy, timeout=timeout, what=what, service=self.services[name], interval=0.25)

    def stop_process(self, name: str, timeout: float = 5.0) -> None:
        """End one of the four and all that it started; for the scheduler, running tasks too."""
        stop_services([self.services.pop(name)], timeout=timeout)

    def start_process(self, name: str, timeout: float = 120.0, options: Sequence[str] = ()) -> None:
        """Start one of the four that was ended, and wait until it is healthy.

        Of the two others Airflow tells no health: for them this returns at once. ``options`` go behind
        the command.
        """
        self._start(name, options)
        if name in PROCESSES:
            self.wait_healthy(name, timeout)

    def restart(self, name: str, timeout: float = 120.0) -> None:
        """End one of the four, or what a kill left of it, and start it anew."""
        self.stop_process(name)
        self.start_process(name, timeout)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the first process of one of them, not to its children."""
        os.kill(self.services[name].pid, number)

    def kill_all(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to all processes of one of them."""
        for pid in scope_pids(self.services[name].mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, timeout: float = 5.0) -> None:
        """End all four and what they started; SIGKILL after ``timeout`` seconds.

        An orderly end can take 15 s and has nothing to save: the database goes away as well.
        """
        stop_services(list(self.services.values()), timeout=timeout)
        self.services.clear()

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _passwords_file(self) -> Path:
        return self.directory / "passwords.json"

    def _health(self) -> dict[str, dict[str, Any]]:
        try:
            answer = request("GET", f"{self.base_url}/api/v2/monitor/health", timeout=5)
            told: dict[str, dict[str, Any]] = answer.json() if answer.status == 200 else {}
        except (OSError, ValueError):
            return {}
        return told

    def _start(self, name: str, options: Sequence[str] = ()) -> None:
        self._started_at[name] = datetime.now(UTC)
        own = {}
        if name == SECOND_TRIGGERER:
            own[_variable("logging.trigger_log_server_port")] = str(ports.free_port())
        self.services[name] = start_service(
            name,
            [str(self._program), *_COMMANDS.get(name, (name,)), *options],
            log=self.directory / "logs" / f"{name}.log",
            env={**self.env, **own},
            cwd=self.home,
            scope=self.scope,
        )


def _variable(key: str) -> str:
    section, _, option = key.rpartition(".")
    return f"AIRFLOW__{section.upper()}__{option.upper()}"
