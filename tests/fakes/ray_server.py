"""A small Ray dashboard: the jobs API, nodes and packages as Ray 2.60 answers them.

The contract tests run against it and a real cluster. A job does nothing by itself: the test moves it
(``run``, ``write``, ``end``). With ``plays=True`` the fake carries out four entrypoints, as a shell would:
``echo <words>``, ``printf '<text with octal escapes>'``, ``exit <code>`` and ``sleep <seconds>``, the last
without an end; and it takes ``python ... <n>`` for a driver with n tasks of half a CPU that do not end.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from airflow_provider_raytenant.runner.end_record import encode
from tests.fakes.faults import Fault, Handler
from tests.fakes.node_summary import Worker, summary

GIB = 1024**3
HEAD = "head".ljust(56, "0")
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
REQUEST_FIELDS: dict[str, type | tuple[type, ...]] = {
    "entrypoint": str,
    "submission_id": str,
    "runtime_env": dict,
    "metadata": dict,
    "entrypoint_num_cpus": (int, float),
    "entrypoint_num_gpus": (int, float),
    "entrypoint_memory": int,
    "entrypoint_resources": dict,
    "entrypoint_label_selector": dict,
}


@dataclass
class FakeJob:
    """A job and the levers that a test moves it with."""

    request: dict[str, Any]
    status: str = "PENDING"
    message: str = "Job has not started yet."
    error_type: str | None = None
    exit_code: int | None = None
    output: bytes = b""
    """The driver's log file."""

    stops: bool = True
    """Whether a stop is obeyed. One of a PENDING job is not, until the job runs: Ray's own way."""

    supervised: bool = True
    """Whether its supervisor lives while it is RUNNING."""

    stop_asked: bool = False
    ray_job_id: str | None = None
    """Ray's own id of its driver, once that has called ``ray.init``."""

    workers: list[Worker] = field(default_factory=list)
    """The processes of its tasks and actors; gone when it is not RUNNING."""

    def run(self) -> None:
        self.status, self.message = "RUNNING", "Job is currently running."
        if self.stop_asked and self.stops:
            self.end("STOPPED", exit_code=None)

    def write(self, text: str | bytes) -> None:
        """Append to the driver's log."""
        self.output += text if isinstance(text, bytes) else text.encode()

    def write_record(self, **record: Any) -> None:
        """Append the runner's end record."""
        self.write(
            encode({"v": 1, "outcome": "exited", "exit_code": 0, "signal": None, "seconds": 1.0, **record})
        )

    def end(
        self,
        status: str = "SUCCEEDED",
        *,
        exit_code: int | None = 0,
        error_type: str | None = None,
        message: str = "",
    ) -> None:
        self.status, self.exit_code, self.error_type, self.message = status, exit_code, error_type, message

    def record(self) -> dict[str, Any]:
        """As ``GET /api/jobs/{id}`` gives it."""
        started = self.status != "PENDING"
        return {
            "type": "SUBMISSION",
            "job_id": self.ray_job_id,
            "submission_id": self.request["submission_id"],
            "driver_info": None,
            "status": self.status,
            "entrypoint": self.request["entrypoint"],
            "message": self.message,
            "error_type": self.error_type,
            "start_time": 1_700_000_000_000,
            "end_time": 1_700_000_001_000 if self.status in ENDED else None,
            "metadata": self.request.get("metadata", {}),
            "runtime_env": self.request.get("runtime_env", {}),
            "driver_agent_http_address": "http://127.0.0.1:52365" if started else None,
            "driver_node_id": HEAD if started else None,
            "driver_exit_code": self.exit_code,
        }


@dataclass(frozen=True)
class Seen:
    """One request that arrived. ``at`` is the loop's time in seconds."""

    method: str
    path: str
    headers: dict[str, str]
    at: float
    query: dict[str, str]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class FakeRay:
    """The dashboard; an asynchronous context manager that listens on a free port of loopback."""

    def __init__(self, *, token: str | None = None, prefix: str = "", plays: bool = False) -> None:
        self.token = token
        self.prefix = prefix
        self.jobs: dict[str, FakeJob] = {}
        self.packages: dict[str, bytes] = {}
        self.actors: list[dict[str, Any]] = []
        """Living actors beside the supervisors of RUNNING jobs; see :func:`actor`."""

        self.most_actors = 10_000
        """How many living actors the state API looks at."""

        self.nodes: list[dict[str, Any]] = [node("head", cpus=2, memory=GIB, head=True)]
        self.version: dict[str, Any] = {"version": "4", "ray_version": "2.60.0", "ray_commit": "c"}
        self.seen: list[Seen] = []
        self.address = ""
        self.on_submit: Callable[[FakeJob], None] = lambda job: None
        """What a job does as soon as it is there."""

        self._plays = plays
        self._faults: list[tuple[str, re.Pattern[str], deque[Fault]]] = []
        self._outage: Fault | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._gate], client_max_size=200 * 1024**2)
        app.router.add_get("/api/version", self._version)
        app.router.add_get("/api/v0/nodes", self._nodes)
        app.router.add_get("/api/v0/actors", self._actors)
        app.router.add_get("/nodes", self._summary)
        app.router.add_get("/api/jobs/", self._list)
        app.router.add_post("/api/jobs/", self._submit)
        app.router.add_get("/api/jobs/{id}", self._job)
        app.router.add_delete("/api/jobs/{id}", self._delete)
        app.router.add_post("/api/jobs/{id}/stop", self._stop)
        app.router.add_get("/api/jobs/{id}/logs", self._logs)
        app.router.add_get("/api/v0/logs/file", self._log_file)
        app.router.add_get("/api/packages/{protocol}/{name}", self._get_package)
        app.router.add_put("/api/packages/{protocol}/{name}", self._put_package)
        if self.prefix:
            outer = web.Application(client_max_size=200 * 1024**2)
            outer.add_subapp(self.prefix, app)
            app = outer
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.address = f"http://127.0.0.1:{port}{self.prefix}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def fail(self, method: str, path: str, *faults: Fault) -> None:
        """Let the next requests that match meet these faults, one each. ``path`` is a whole-path regex."""
        self._faults.append((method, re.compile(path), deque(faults)))

    def outage(self, fault: Fault | None) -> None:
        """Let every request meet ``fault`` from now on; ``None`` ends it."""
        self._outage = fault

    def calls(self, method: str = "", path: str = ".*") -> list[str]:
        """``POST /api/jobs/`` and so on, as they arrived; of one method and a whole-path regex if given."""
        return [str(s) for s in self.seen if method in ("", s.method) and re.fullmatch(path, s.path)]

    def add_job(self, submission_id: str, **request: Any) -> FakeJob:
        """A job that is there before anybody submits."""
        job = FakeJob({"entrypoint": "true", **request, "submission_id": submission_id})
        self.jobs[submission_id] = job
        return job

    @web.middleware
    async def _gate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path.removeprefix(self.prefix)
        now = asyncio.get_running_loop().time()
        self.seen.append(Seen(request.method, path, dict(request.headers), now, dict(request.query)))
        fault = self._outage or self._next_fault(request.method, path)
        return await (fault(request, self._checked(handler)) if fault else self._checked(handler)(request))

    def _next_fault(self, method: str, path: str) -> Fault | None:
        for wanted, pattern, faults in self._faults:
            if faults and wanted == method and pattern.fullmatch(path):
                return faults.popleft()
        return None

    def _checked(self, handler: Handler) -> Handler:
        """The handler behind Ray's checks: first the token, then whether a browser asks."""

        async def checked(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("Authorization") or request.headers.get("X-Ray-Authorization", "")
            if self.token and not given:
                return web.Response(status=401, text="Unauthorized: Missing authentication token")
            if self.token and given != f"Bearer {self.token}":
                return web.Response(status=403, text="Forbidden: Invalid authentication token")
            if request.method != "GET" and request.headers.get("User-Agent", "").startswith("Mozilla"):
                return web.Response(status=405, text="method not allowed for browser traffic.")
            try:
                return await handler(request)
            except web.HTTPException as error:
                return web.Response(status=error.status, text=error.text)

        return checked

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response(self.version)

    async def _nodes(self, request: web.Request) -> web.Response:
        rows = self.nodes[: int(request.query.get("limit", "100"))]
        if not request.query.get("detail"):
            rows = [{k: row[k] for k in ("node_id", "state", "is_head_node")} for row in rows]
        return web.json_response({"result": True, "msg": "", "data": {"result": {"result": rows}}})

    async def _actors(self, request: web.Request) -> web.Response:
        """Living actors, filtered as Ray does: by state before the first limit, by the rest after it."""
        supervised = [job for job in self.jobs.values() if job.status == "RUNNING" and job.supervised]
        rows = [actor("JobSupervisor", f"_ray_internal_job_actor_{_id(job)}") for job in supervised]
        rows += self.actors
        total, rows = len(rows), rows[: self.most_actors]
        counts = {"total": total, "num_after_truncation": len(rows)}
        query = request.query
        filters = zip(
            query.getall("filter_keys", []),
            query.getall("filter_predicates", []),
            query.getall("filter_values", []),
            strict=True,
        )
        for key, predicate, value in filters:
            if predicate != "=" or key not in ("class_name", "state", "name"):
                return web.json_response({"result": False, "msg": f"filter {key}", "data": {}}, status=400)
            rows = [row for row in rows if str(row[key]).lower() == value.lower()]
        found = rows[: int(query.get("limit", "100"))]
        answer = {**counts, "num_filtered": len(rows), "result": found, "partial_failure_warning": ""}
        return web.json_response({"result": True, "msg": "", "data": {"result": answer}})

    async def _summary(self, request: web.Request) -> web.Response:
        if request.query.get("view") != "summary":
            return web.json_response({"result": False, "msg": "Unknown view", "data": {}}, status=500)
        live = [job for job in self.jobs.values() if job.status == "RUNNING" and job.ray_job_id]
        workers = {str(job.ray_job_id): job.workers for job in live}
        return web.json_response(summary(self.nodes, workers))

    async def _list(self, _request: web.Request) -> web.Response:
        driver = {"type": "DRIVER", "job_id": "01000000", "submission_id": None, "status": "RUNNING"}
        return web.json_response([*(job.record() for job in self.jobs.values()), driver])

    async def _submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        for name, value in body.items():
            if name not in REQUEST_FIELDS or not isinstance(value, REQUEST_FIELDS[name]):
                return web.Response(status=400, text=f"Traceback ... TypeError: wrong field {name!r}")
        if not all(isinstance(text, str) for text in body.get("metadata", {}).values()):
            return web.Response(status=400, text="Traceback ... TypeError: metadata")
        if "entrypoint" not in body:
            return web.Response(status=400, text="Traceback ... TypeError: no entrypoint")
        name = body["submission_id"]
        if name in self.jobs:
            text = f"Traceback ... ValueError: Job with submission_id {name} already exists."
            return web.Response(status=500, text=text)
        self.jobs[name] = FakeJob(body)
        self.on_submit(self.jobs[name])
        if self._plays:
            _play(self.jobs[name])
        return web.json_response({"job_id": name, "submission_id": name})

    async def _job(self, request: web.Request) -> web.Response:
        return web.json_response(self._known(request).record())

    async def _delete(self, request: web.Request) -> web.Response:
        job = self._known(request)
        if job.status not in ENDED:
            return web.Response(status=500, text="RuntimeError: Attempted to delete job, but ...")
        del self.jobs[request.match_info["id"]]
        return web.json_response({"deleted": True})

    async def _stop(self, request: web.Request) -> web.Response:
        job = self._known(request)
        live = job.status not in ENDED
        job.stop_asked = True
        if job.status == "RUNNING" and job.stops:
            job.end("STOPPED", exit_code=None, message="Job was intentionally stopped.")
        return web.json_response({"stopped": live})

    async def _logs(self, request: web.Request) -> web.Response:
        """As text with universal newlines, whatever of it is there: Ray's way."""
        try:
            with io.TextIOWrapper(io.BytesIO(self._known(request).output), "utf-8") as file:
                return web.json_response({"logs": file.read()})
        except UnicodeDecodeError as error:
            return web.Response(status=500, text=f"Traceback ... UnicodeDecodeError: {error}")

    async def _log_file(self, request: web.Request) -> web.Response:
        node_id, name = request.query["node_id"], request.query["filename"]
        if node_id not in (row["node_id"] for row in self.nodes):
            return web.Response(status=500, text=f"Agent for node id: {node_id} doesn't exist.")
        job = self.jobs.get(name.removeprefix("job-driver-").removesuffix(".log"))
        if job is None or job.status == "PENDING":
            return web.Response(status=500, text=f"A file is not found at: /tmp/ray/logs/{name}")
        lines = int(request.query.get("lines", "1000"))
        return web.Response(body=last_lines(job.output, lines), content_type="text/plain")

    async def _get_package(self, request: web.Request) -> web.Response:
        uri = _package_uri(request)
        if uri not in self.packages:
            return web.Response(status=404, text=f"Package {uri} does not exist")
        return web.Response()

    async def _put_package(self, request: web.Request) -> web.Response:
        self.packages[_package_uri(request)] = await request.read()
        return web.Response()

    def _known(self, request: web.Request) -> FakeJob:
        name = request.match_info["id"]
        if name not in self.jobs:
            raise web.HTTPNotFound(text=f"Job {name} does not exist")
        return self.jobs[name]


def node(
    name: str, *, cpus: float, memory: int, head: bool = False, state: str = "ALIVE", **more: Any
) -> dict[str, Any]:
    """A row of ``/api/v0/nodes``; ``more`` goes into its resources."""
    return {
        "node_id": name.ljust(56, "0"),
        "state": state,
        "is_head_node": head,
        "resources_total": {"CPU": float(cpus), "memory": float(memory), f"node:{name}": 1.0, **more},
        "labels": {"ray.io/node-id": name.ljust(56, "0")},
    }


def actor(class_name: str, name: str = "", state: str = "ALIVE") -> dict[str, Any]:
    """A row of ``/api/v0/actors``."""
    return {"actor_id": "a" * 32, "class_name": class_name, "name": name, "state": state}


def _id(job: FakeJob) -> str:
    return str(job.request["submission_id"])


def last_lines(output: bytes, count: int) -> bytes:
    """As Ray counts them: a last line without LF is one, and -1 is all."""
    return output if count < 0 else b"".join(re.findall(rb"[^\n]*\n|[^\n]+", output)[-count:])


def _package_uri(request: web.Request) -> str:
    return f"{request.match_info['protocol']}://{request.match_info['name']}"


def _play(job: FakeJob) -> None:
    program, _, rest = job.request["entrypoint"].partition(" ")
    job.run()
    job.write(f"Running entrypoint for job {job.request['submission_id']}: {job.request['entrypoint']}\n")
    if program == "echo":
        job.write(rest + "\n")
        job.end(message="Job finished successfully.")
    elif program == "printf":
        job.write(
            rest.strip("'").replace("%%", "%").encode("latin-1").decode("unicode_escape").encode("latin-1")
        )
        job.end(message="Job finished successfully.")
    elif program == "python":
        job.ray_job_id = "02000000"
        job.workers += [Worker({"CPU": 0.5}) for _ in range(int(rest.split()[-1]))]
    elif program == "exit":
        job.end("FAILED", exit_code=int(rest), message=f"Job failed with exit code {rest}")
