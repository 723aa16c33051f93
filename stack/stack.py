"""The whole: S3, Ray, PostgreSQL and Airflow under one directory, in one context manager."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self, TypeVar

from airflow_provider_raytenant.local.processes import Service, stop_scope, stop_services
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.local.ray_node import remove_temp_dir
from airflow_provider_raytenant.local.s3_server import S3Server
from stack.airflow_stack import AirflowStack
from stack.fault_proxy import FaultProxy
from stack.postgres import Postgres
from stack.rest import AirflowApi

Progress = Callable[[str], None]
_STATE = "stack.json"
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class RaySize:
    """What the Ray cluster offers; the fields are those of ``RayCluster.start``."""

    cpus: float = 4
    memory_bytes: int = 8 * 1024**3
    gpus: float = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    head_cpus: float | None = None
    token: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Stack:
    """All services that the demo and the tests need; a context manager.

    Entering it starts them, as far as possible side by side, and returns when all are ready. Leaving it
    ends them all, and so do an error, Ctrl-C or SIGTERM at any moment; with ``keep`` only those three do.
    What an earlier stack left up in the same ``directory`` is ended first.

    ``airflow_env`` is added to the environment of Airflow's processes; it may be a function of the stack,
    called when S3, Ray and PostgreSQL are up, so that it can name their addresses. ``tenant_file`` is put
    into ``[raytenant] config_file``. ``fault_proxy`` puts a proxy before Ray's dashboard, for connections
    that are to break: ``proxy``. ``progress`` is told each step with the seconds it took.
    """

    def __init__(
        self,
        directory: Path,
        dags_folder: Path,
        *,
        ray_binary: Path | None = None,
        ray: RaySize | None = None,
        with_s3: bool = True,
        tenant_file: Path | None = None,
        airflow_config: Mapping[str, str] | None = None,
        airflow_env: Mapping[str, str] | Callable[[Stack], Mapping[str, str]] | None = None,
        fault_proxy: bool = False,
        keep: bool = False,
        progress: Progress = lambda text: None,
    ) -> None:
        self.directory = directory.absolute()
        self.scope = f"stack-{uuid.uuid4().hex[:8]}"
        self.s3: S3Server | None = None
        self._ray: RayCluster | None = None
        self._postgres: Postgres | None = None
        self._airflow: AirflowStack | None = None
        self._dags_folder = dags_folder
        self._ray_binary = ray_binary
        self._ray_size = ray or RaySize()
        self._with_s3 = with_s3
        self._config = dict(airflow_config or {})
        if tenant_file is not None:
            self._config.setdefault("raytenant.config_file", str(tenant_file.absolute()))
        self._airflow_env = airflow_env or {}
        self._with_proxy = fault_proxy
        self._proxy: FaultProxy | None = None
        self._keep = keep
        self._progress = progress

    @property
    def ray(self) -> RayCluster:
        return _present(self._ray, "Ray")

    @property
    def proxy(self) -> FaultProxy:
        return _present(self._proxy, "the proxy")

    @property
    def postgres(self) -> Postgres:
        return _present(self._postgres, "PostgreSQL")

    @property
    def airflow(self) -> AirflowStack:
        return _present(self._airflow, "Airflow")

    @property
    def api(self) -> AirflowApi:
        """A client of Airflow's REST API, as its administrator."""
        return self.airflow.api()

    def start(self) -> None:
        """Start everything; raises what the parts raise, and then nothing is left running."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        end_left_over(self.directory)
        self._write_state()
        with _sigterm_raises():
            try:
                self._start_side_by_side()
                with self._step("Airflow's four processes"):
                    extra = self._airflow_env
                    self.airflow.add_env(extra(self) if callable(extra) else extra)
                    self.airflow.start()
                self._write_state()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End everything. Data of S3 and all logs stay in the directory."""
        services: list[Service] = []
        services += self._airflow.services.values() if self._airflow else []
        services += [node.service for node in self._ray.nodes] if self._ray else []
        services += [part.service for part in (self._postgres, self.s3) if part]
        # All at once, since each takes some seconds to end; then each part tidies up behind itself.
        stop_services(services, timeout=6.0)
        for part in (self._airflow, self._proxy, self._ray, self._postgres, self.s3):
            if part is not None:
                part.stop()
        stop_scope(self.scope)
        (self.directory / _STATE).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self._until_left = ExitStack()
        self._until_left.enter_context(_sigterm_raises())
        try:
            self.start()
        except BaseException:
            self._until_left.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._keep or error is not None:
                self.stop()
        finally:
            self._until_left.close()

    def _start_side_by_side(self) -> None:
        """Two chains: S3 and Ray, PostgreSQL and Airflow's tables."""
        pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="stack")
        chains = [pool.submit(self._start_s3_and_ray), pool.submit(self._start_postgres_and_tables)]
        try:
            wait(chains, return_when=FIRST_EXCEPTION)
            failed = [chain for chain in chains if chain.done() and chain.exception() is not None]
            if failed:
                failed[0].result()
        except BaseException:
            self._abandon(chains)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _abandon(self, chains: list[Future[None]]) -> None:
        """Kill what the chains start until they have given up: a wait ends when its service is gone."""
        while any(not chain.done() for chain in chains):
            stop_scope(self.scope)
            wait(chains, timeout=0.2)

    def _start_s3_and_ray(self) -> None:
        if self._with_s3:
            with self._step("S3"):
                self.s3 = S3Server.start(self.directory / "s3", scope=self.scope)
        size = self._ray_size
        with self._step("Ray"):
            self._ray = RayCluster.start(
                self.directory / "ray",
                size.cpus,
                size.memory_bytes,
                self._ray_binary,
                size.token,
                dict(size.env),
                size.gpus,
                size.labels,
                size.head_cpus,
                scope=self.scope,
            )
        if self._with_proxy:
            self._proxy = FaultProxy(self._ray.dashboard_url)
            self._proxy.start()

    def _start_postgres_and_tables(self) -> None:
        with self._step("PostgreSQL"):
            self._postgres = Postgres.start(self.directory / "postgres", scope=self.scope)
        with self._step("Airflow's tables"):
            airflow = AirflowStack(
                self.directory / "airflow",
                self._dags_folder,
                self._postgres.url,
                self._config,
                scope=self.scope,
            )
            airflow.prepare()
            self._airflow = airflow

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self._progress(f"{what}: {time.monotonic() - begun:.1f} s")

    def _write_state(self) -> None:
        """Before anything is started, the scope; afterwards also what a person needs to use it."""
        content: dict[str, object] = {"scope": self.scope}
        if self._airflow is not None and self._airflow.services:
            content["airflow"] = self._airflow.base_url
            content["user"] = self._airflow.user
            content["password"] = self._airflow.password
            content["ray"] = self.ray.dashboard_url
            content["nodes"] = [str(node.temp_dir) for node in self.ray.nodes]
            content["data"] = str(self.postgres.root)
            if self.s3 is not None:
                content["s3"] = self.s3.endpoint_url
        path = self.directory / _STATE
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(content, file, indent=2)


def end_left_over(directory: Path) -> bool:
    """End the stack that was kept, or left behind by a killed program, in ``directory``.

    Returns whether there was one. It is killed at once; the temporary directories of a stack whose start
    was not finished stay.
    """
    path = directory / _STATE
    try:
        state = json.loads(path.read_text())
        scope = str(state["scope"])
    except FileNotFoundError:
        return False
    except (ValueError, KeyError):
        # Half-written by a program that was killed before it started anything.
        path.unlink()
        return False
    stop_scope(scope)
    for temp_dir in state.get("nodes", ()):
        remove_temp_dir(Path(temp_dir))
    if "data" in state:
        shutil.rmtree(state["data"], ignore_errors=True)
    path.unlink()
    return True


def _present(part: _Part | None, name: str) -> _Part:
    if part is None:
        raise RuntimeError(f"{name} is not started")
    return part


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise ``SystemExit`` meanwhile, so that a start that is called off tidies up.

    Without effect outside the main thread, which alone may set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
