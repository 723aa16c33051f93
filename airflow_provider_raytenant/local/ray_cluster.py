"""A Ray cluster of one or more nodes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_provider_raytenant.local import ports
from airflow_provider_raytenant.local.errors import RequestRefused, ServiceDied
from airflow_provider_raytenant.local.http import answers, request_json
from airflow_provider_raytenant.local.processes import (
    kill_service,
    stop_service,
    stop_services,
    wait_until,
)
from airflow_provider_raytenant.local.programs import find_program
from airflow_provider_raytenant.local.ray_node import (
    LABEL,
    MIB,
    NodeShape,
    RayNode,
    node_environment,
    start_node,
)

HEAD = "head"
_NO_WORK_MEMORY = 64 * MIB
_START_TIMEOUT = 120.0
# `ray start` gives up after 30 s, which no setting changes: on a busy machine worth a second try.
_GAVE_UP = "timed out during startup"


def find_ray() -> Path:
    """The ``ray`` beside this interpreter, else the one on PATH; raises ``ProgramMissing``."""
    return find_program("ray", "install the package ray[default]")


@dataclass
class RayCluster:
    """A running cluster; a context manager that stops it. ``nodes[0]`` is the head.

    Nodes listen on this machine's address, not on loopback alone, whatever they are told; the dashboard
    with the jobs API listens on loopback.
    """

    directory: Path
    ray_binary: Path
    gcs_port: int
    dashboard_port: int
    token: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    scope: str | None = None
    nodes: list[RayNode] = field(default_factory=list)
    client_port: int = 0

    @classmethod
    def start(
        cls,
        directory: Path,
        cpus: float,
        memory_bytes: int,
        ray_binary: Path | None = None,
        token: str | None = None,
        env: Mapping[str, str] | None = None,
        gpus: float = 0,
        labels: Mapping[str, str] | None = None,
        head_cpus: float | None = None,
        *,
        temp_dir: Path | None = None,
        scope: str | None = None,
        timeout: float = _START_TIMEOUT,
    ) -> Self:
        """Start a cluster and return when jobs can be submitted.

        ``cpus``, ``memory_bytes``, ``gpus`` and ``labels`` are what the head offers; with ``head_cpus``
        the head offers only that many CPUs (0: it takes no work) and a second node offers the rest.
        ``env`` goes on top of the nodes' environment, which all jobs see. With a ``token`` every request
        needs it; without one the cluster is open to this machine. Logs lie in ``directory``;
        ``temp_dir`` (Ray's own, default a new short one) is removed by ``stop``.

        Raises ``ProgramMissing``, ``PathTooLong``, ``ServiceDied`` or ``NotReady`` (after ``timeout``
        seconds); nothing is left running then.
        """
        directory.mkdir(parents=True, exist_ok=True)
        gcs_port, dashboard_port, client, metrics, autoscaler = ports.free_ports(5)
        # Two ports that no option sets: Prometheus ports of the dashboard and of the autoscaler.
        hidden = {"DASHBOARD_METRIC_PORT": str(metrics), "AUTOSCALER_METRIC_PORT": str(autoscaler)}
        cluster = cls(
            directory,
            (ray_binary or find_ray()).absolute(),
            gcs_port,
            dashboard_port,
            token,
            {**hidden, **(env or {})},
            scope,
            client_port=client,
        )
        shape = NodeShape(cpus, memory_bytes, gpus, dict(labels or {}))
        head_shape = shape if head_cpus is None else _head_shape(head_cpus, cpus, memory_bytes)
        cluster._start_ready(HEAD, cluster._head_role(), head_shape, timeout, temp_dir)
        try:
            if head_cpus is not None:
                cluster.add_node(cpus, memory_bytes, gpus, labels, timeout=timeout)
        except BaseException:
            cluster.stop(timeout=0.0)
            raise
        return cluster

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def head(self) -> RayNode:
        return self.nodes[0]

    @property
    def running(self) -> bool:
        """Whether the head lives and its dashboard answers."""
        return bool(self.nodes) and self.head.service.running and self._answers()

    def wait_ready(self, timeout: float = _START_TIMEOUT) -> None:
        """Wait until every node is ready; see ``wait_until`` for the errors."""
        for node in self.nodes:
            self._wait_node(node, timeout)

    def api(self, method: str, path: str, body: Any = None, timeout: float = 30.0) -> Any:
        """The JSON that the dashboard answers to a request; raises ``RequestRefused`` or ``OSError``."""
        return request_json(method, self.dashboard_url + path, token=self.token, body=body, timeout=timeout)

    def alive_nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes that Ray holds for alive, by name, as ``/api/v0/nodes`` describes them."""
        answer = self.api("GET", "/api/v0/nodes?detail=1&limit=10000")
        nodes = answer["data"]["result"]["result"]
        return {node["labels"].get(LABEL, node["node_id"]): node for node in nodes if _alive(node)}

    def add_node(
        self,
        cpus: float,
        memory_bytes: int,
        gpus: float = 0,
        labels: Mapping[str, str] | None = None,
        *,
        timeout: float = _START_TIMEOUT,
    ) -> RayNode:
        """Start another node and return when Ray holds it for alive; it is gone if that fails."""
        taken = {node.name for node in self.nodes}
        name = next(name for n in range(1, len(taken) + 2) if (name := f"node-{n}") not in taken)
        shape = NodeShape(cpus, memory_bytes, gpus, dict(labels or {}))
        role = [f"--address=127.0.0.1:{self.gcs_port}"]
        return self._start_ready(name, role, shape, timeout, self._temp_dir())

    def remove_node(self, node: RayNode, *, timeout: float = 60.0) -> None:
        """End a node in an orderly way and wait until Ray knows; raises ``NotReady``."""
        self._end(node, 10.0)
        wait_until(
            lambda: node.name not in self.alive_nodes(), timeout=timeout, what=f"the end of {node.name}"
        )

    def kill_node(self, node: RayNode) -> None:
        """SIGKILL all processes of a node at once, as when its machine dies; Ray notices later."""
        kill_service(node.service)
        self._end(node, 0.0)

    def restart_head(
        self, meanwhile: Callable[[], None] = lambda: None, *, timeout: float = _START_TIMEOUT
    ) -> None:
        """SIGKILL the head with all that runs on it, and start it anew on the same ports.

        What it knew is lost, unless ``env`` gives it a place to keep it: ``RAY_gcs_storage=rocksdb`` and
        ``RAY_gcs_storage_path`` (Ray 2.60). The other nodes are left as they are; they end by themselves
        after a minute where the new head does not know them. ``meanwhile`` is called while there is no
        head. Returns when jobs can be submitted; raises as ``start`` does, and then there is no head.
        """
        shape = self.head.shape
        temp_dir = self.head.temp_dir
        self.kill_node(self.head)
        meanwhile()
        # Where this file is, `ray start` takes the head that it names for one that runs.
        (temp_dir / "ray_current_cluster").unlink(missing_ok=True)
        self._start_ready(HEAD, self._head_role(), shape, timeout, self._temp_dir())

    def stop(self, timeout: float = 10.0) -> None:
        """End all nodes, SIGKILL after ``timeout`` seconds; logs stay in ``directory``."""
        stop_services([node.service for node in self.nodes], timeout=timeout)
        while self.nodes:
            self._remove(self.nodes[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def to_json(self) -> dict[str, Any]:
        """The state for another process; holds the token and what ``env`` holds."""
        return {
            **vars(self),
            "directory": str(self.directory),
            "ray_binary": str(self.ray_binary),
            "nodes": [node.to_json() for node in self.nodes],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            **{
                **data,
                "directory": Path(data["directory"]),
                "ray_binary": Path(data["ray_binary"]),
                "nodes": [RayNode.from_json(node) for node in data["nodes"]],
            }
        )

    def _head_role(self) -> list[str]:
        return [
            "--head",
            f"--port={self.gcs_port}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self.dashboard_port}",
            f"--ray-client-server-port={self.client_port}",
        ]

    def _answers(self) -> bool:
        return answers(f"{self.dashboard_url}/api/version", token=self.token)

    def _start(self, name: str, role: list[str], shape: NodeShape, temp_dir: Path | None) -> RayNode:
        node = start_node(
            name,
            role,
            shape,
            ray_binary=self.ray_binary,
            directory=self.directory,
            environment=node_environment(self.ray_binary, self.env, self._token_file()),
            temp_dir=temp_dir,
            scope=self.scope,
        )
        self.nodes.insert(0 if name == HEAD else len(self.nodes), node)
        return node

    def _start_ready(
        self,
        name: str,
        role: list[str],
        shape: NodeShape,
        timeout: float,
        temp_dir: Path | None = None,
        *,
        again: bool = True,
    ) -> RayNode:
        """Start a node and wait for it; it is gone if that fails, or is called off."""
        node = self._start(name, role, shape, temp_dir)
        try:
            self._wait_node(node, timeout)
        except BaseException as error:
            self._end(node, 0.0)
            if again and isinstance(error, ServiceDied) and _GAVE_UP in error.tail:
                return self._start_ready(name, role, shape, timeout, temp_dir, again=False)
            raise
        return node

    def _end(self, node: RayNode, timeout: float) -> None:
        stop_service(node.service, timeout=timeout)
        self._remove(node)

    def _remove(self, node: RayNode) -> None:
        """Forget a node that has ended; the last one's temporary directory goes with it."""
        self.nodes.remove(node)
        if node.temp_dir != self._temp_dir():
            node.clean(self.directory / "logs")

    def _temp_dir(self) -> Path | None:
        """The temporary directory of all nodes.

        They share it: a node's agent takes itself for the head's where both run on one machine, whatever
        their addresses, and looks for the output of its jobs in the head's directory (Ray 2.60,
        ``get_node_to_connect_for_driver``).
        """
        return self.nodes[0].temp_dir if self.nodes else None

    def _wait_node(self, node: RayNode, timeout: float) -> None:
        """A node takes jobs when the head lists it and its agent, which starts drivers, is healthy."""

        def ready() -> bool:
            try:
                if node.name not in self.alive_nodes():
                    return False
            except (OSError, RequestRefused):
                return False
            return answers(f"{node.agent_url}/api/local_raylet_healthz", token=self.token)

        wait_until(ready, timeout=timeout, what=f"Ray's node {node.name}", service=node.service)

    def _token_file(self) -> Path | None:
        if self.token is None:
            return None
        path = self.directory.absolute() / "token"
        path.touch(mode=0o600)
        path.write_text(self.token)
        return path


def _head_shape(head_cpus: float, cpus: float, memory_bytes: int) -> NodeShape:
    """A head beside a working node: as much memory for each of its CPUs as that node has."""
    share = int(memory_bytes * head_cpus / cpus) if cpus else 0
    return NodeShape(head_cpus, max(share, _NO_WORK_MEMORY))


def _alive(node: Mapping[str, Any]) -> bool:
    return bool(node["state"] == "ALIVE")
