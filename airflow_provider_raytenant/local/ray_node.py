"""One node of a local Ray cluster: its command line, environment and temporary directory."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_raytenant.local import ports
from airflow_provider_raytenant.local.errors import PathTooLong
from airflow_provider_raytenant.local.processes import Service, start_service
from airflow_provider_raytenant.local.programs import inherited_environment

LABEL = "raytenant.local/node"
MIB = 1024 * 1024

# What Ray adds to its temporary directory for its longest Unix socket:
# "/session_2026-01-31_23-59-59_123456_1234567/sockets/plasma_store", with room for a longer process id.
_SOCKET_SUFFIX = 68
_SOCKET_LIMIT = 107 if sys.platform == "linux" else 103

_PREFIX = "rt-ray-"

# Settings of the caller's shell that would point a node at another cluster or at other data.
_FOREIGN = (
    "RAY_ADDRESS",
    "RAY_API_SERVER_ADDRESS",
    "RAY_JOB_HEADERS",
    "RAY_NAMESPACE",
    "RAY_TMPDIR",
    "PYTHONPATH",
    "PYTHONHOME",
)

# Keeps an idle cluster cheap: no metrics are gathered, and the first driver does not wait for as many
# worker processes as the node has logical CPUs. On SIGTERM a node ends at once: by default it goes on
# for 30 s if a job still runs.
_QUIET = {
    "RAY_enable_metrics_collection": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}


@dataclass(frozen=True)
class NodeShape:
    """What a node offers: logical CPUs and GPUs, memory in bytes, labels."""

    cpus: float
    memory_bytes: int
    gpus: float = 0
    labels: dict[str, str] = field(default_factory=dict)
    object_store_bytes: int = 128 * MIB

    def options(self, name: str) -> list[str]:
        labels = {**self.labels, LABEL: name}
        return [
            f"--num-cpus={self.cpus:g}",
            f"--num-gpus={self.gpus:g}",
            f"--memory={self.memory_bytes}",
            f"--object-store-memory={self.object_store_bytes}",
            "--labels=" + ",".join(f"{key}={value}" for key, value in labels.items()),
        ]


@dataclass(frozen=True)
class RayNode:
    """A node that was started. ``name`` is also its label ``raytenant.local/node``."""

    name: str
    service: Service
    temp_dir: Path
    agent_port: int
    shape: NodeShape

    @property
    def agent_url(self) -> str:
        """The node's own agent, which answers before the head knows of it."""
        return f"http://127.0.0.1:{self.agent_port}"

    def clean(self, keep_logs_in: Path) -> None:
        """Remove the temporary directory of a node that has ended; its logs are kept."""
        for session in self.temp_dir.glob("session_2*"):
            if (session / "logs").is_dir():
                shutil.copytree(session / "logs", keep_logs_in / self.name, symlinks=True, dirs_exist_ok=True)
        remove_temp_dir(self.temp_dir)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "service": self.service.to_json(),
            "temp_dir": str(self.temp_dir),
            "agent_port": self.agent_port,
            "shape": vars(self.shape),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RayNode:
        return cls(
            data["name"],
            Service.from_json(data["service"]),
            Path(data["temp_dir"]),
            data["agent_port"],
            NodeShape(**data["shape"]),
        )


def start_node(
    name: str,
    role: list[str],
    shape: NodeShape,
    *,
    ray_binary: Path,
    directory: Path,
    environment: Mapping[str, str],
    temp_dir: Path | None = None,
    scope: str | None = None,
) -> RayNode:
    """Run ``ray start --block`` with ports of its own; ``role`` says whether it is a head.

    Log and working directory of jobs lie in ``directory``. Raises ``PathTooLong``.
    """
    temp_dir = make_temp_dir() if temp_dir is None else check_temp_dir(temp_dir)
    work = directory / "cwd"
    work.mkdir(parents=True, exist_ok=True)
    agent, *others = ports.free_ports(6)
    names = (
        "dashboard-agent-grpc-port",
        "runtime-env-agent-port",
        "metrics-export-port",
        "node-manager-port",
        "object-manager-port",
    )
    low, high = ports.free_worker_range()
    command = [
        str(ray_binary),
        "start",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--temp-dir={temp_dir}",
        f"--dashboard-agent-listen-port={agent}",
        *(f"--{option}={port}" for option, port in zip(names, others, strict=True)),
        f"--min-worker-port={low}",
        f"--max-worker-port={high}",
        "--disable-usage-stats",
        "--log-color=false",
        *shape.options(name),
        *role,
    ]
    service = start_service(
        f"ray-{name}",
        command,
        log=directory / f"{name}.log",
        env=environment,
        cwd=work,
        scope=scope,
    )
    return RayNode(name, service, temp_dir, agent, shape)


def node_environment(ray_binary: Path, extra: Mapping[str, str], token_file: Path | None) -> dict[str, str]:
    """The environment of a node, which all of its jobs see: so without Airflow's settings.

    ``python`` is the one beside ``ray_binary``. The token stands in a file, never on a command line.
    """
    authentication = {"RAY_AUTH_MODE": "disabled"}
    if token_file is not None:
        authentication = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file)}
    # Keys that are given must not be mixed with a session token or a profile of the caller.
    prefixes = ("AIRFLOW", "RAY_AUTH", *(["AWS_"] if "AWS_ACCESS_KEY_ID" in extra else []))
    return inherited_environment(
        {**_QUIET, **authentication, **extra},
        path_first=ray_binary.absolute().parent,
        drop=_FOREIGN,
        drop_prefixes=prefixes,
    )


def make_temp_dir() -> Path:
    """A new directory with a path short enough for Ray's sockets, below one only its owner can enter.

    Ray itself opens its temporary directory, which holds all logs, to everybody.
    """
    for parent in (tempfile.gettempdir(), "/tmp"):
        if len(parent) + len("/rt-ray-12345678/r") <= _SOCKET_LIMIT - _SOCKET_SUFFIX:
            return check_temp_dir(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)) / "r")
    return check_temp_dir(Path(tempfile.mkdtemp(prefix=_PREFIX)) / "r")


def remove_temp_dir(temp_dir: Path) -> None:
    """Remove a node's temporary directory, and the one above it that ``make_temp_dir`` made for it."""
    own = temp_dir.parent if temp_dir.parent.name.startswith(_PREFIX) else temp_dir
    shutil.rmtree(own, ignore_errors=True)


def check_temp_dir(path: Path) -> Path:
    """Return ``path`` as an absolute one; raises ``PathTooLong``."""
    path = path.absolute()
    limit = _SOCKET_LIMIT - _SOCKET_SUFFIX
    if len(bytes(path)) > limit:
        raise PathTooLong(path, len(bytes(path)), limit)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
