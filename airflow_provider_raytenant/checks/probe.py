"""A tiny job of the doctor's own, and what it tells.

Its metadata names no try, so the sweep takes it for nobody's and leaves it alone; the doctor deletes its
record.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from airflow_provider_raytenant.checks import node_look
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.tenants import Tenant
from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.ray_api.client import RayClient

ID_PREFIX: Final = "raytenant-doctor-"
MARK_KEY: Final = "raytenant.doctor"
FOR_PIP: Final = ("pip", "virtualenv")
"""What a node's Python needs for a job's ``pip``: Ray 2.60 makes an environment with the second, or clones
the node's own, and installs with the first."""

CPUS: Final = 0.01
"""Ray pins a job that asks for nothing to the head. A job of so little fits beside any other."""

NODE_SECONDS: Final = 20.0
_INTERVAL = 0.3
_LOOKS: Final = 30
"""At a job that ends; Ray kills what does not end within 3 s."""

_SETTLED = 3.0
"""Seconds after the supervisor's end in which Ray's monitor, which looks every second, has seen it."""
_LARGEST_LOG: Final = 1024 * 1024
_AWS_VARIABLES: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True)
class NodeReport:
    """One node. ``s3`` by tenant: empty where its prefix can be listed."""

    python: str
    missing: tuple[str, ...]
    start_timeout: str | None
    s3: Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """What the job told; ``trouble`` says why it told nothing.

    :param waited: whether the job never started within the time that it had.
    """

    driver_python: str = ""
    alive: int = 0
    asked: int = 0
    nodes: Mapping[str, NodeReport] = field(default_factory=dict)
    trouble: str = ""
    waited: bool = False


def probe_request(
    submission_id: str, deployment: str, tenants: Mapping[str, Tenant], urls: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The body of ``POST /api/jobs/``. It shows no secret: Ray shows it to everyone.

    :param urls: by tenant, the presigned URL of an object that says nothing.
    """
    s3 = {name: (t.storage, _aws_variables(t)) for name, t in tenants.items() if wants_s3(t)}
    spec = {
        "packages": FOR_PIP,
        "seconds": NODE_SECONDS,
        "s3": {**s3, **{name: (url, {}) for name, url in (urls or {}).items()}},
    }
    script = Path(node_look.__file__).read_text(encoding="utf-8")
    return {
        "submission_id": submission_id,
        "entrypoint": "exec " + shlex.join(["python", "-c", script, json.dumps(spec)]),
        "metadata": {MARK_KEY: deployment},
        "entrypoint_num_cpus": CPUS,
    }


def wants_s3(tenant: Tenant) -> bool:
    """Whether its jobs reach S3 with the nodes' own credentials."""
    return tenant.storage is not None and tenant.credentials == "node"


async def run_probe(
    client: RayClient,
    deployment: str,
    tenants: Mapping[str, Tenant],
    patience: float,
    urls: Mapping[str, str] | None = None,
) -> Report:
    """Run the job and read its report.

    :param urls: by tenant, what nodes are to read of its storage without credentials of their own.
    :param patience: seconds that it may take.
    :raises RayTenantError: Ray gave no sound answer.
    """
    name = ID_PREFIX + uuid.uuid4().hex[:16]
    try:
        await client.submit(probe_request(name, deployment, tenants, urls))
        deadline = time.monotonic() + patience
        info = await client.job(name)
        while not info.status.is_terminal and time.monotonic() < deadline:
            await asyncio.sleep(_INTERVAL)
            info = await client.job(name)
        if not info.status.is_terminal:
            what = "waits in Ray" if info.status is JobStatus.PENDING else "runs"
            return Report(
                trouble=f"the doctor's job still {what} after {patience:g} s",
                waited=info.status is JobStatus.PENDING,
            )
        return parse_report(await client.logs(name, largest=_LARGEST_LOG), info)
    finally:
        await _remove(client, name)


def parse_report(output: str, info: JobInfo) -> Report:
    """The report in a job's output."""
    lines = [line for line in output.splitlines() if line.startswith(node_look.MARK)]
    if not lines:
        last = " ".join((info.message or output).split())[-300:]
        return Report(trouble=f"the doctor's job ended {info.status.value} without a report: {last}")
    try:
        data = json.loads(lines[-1].removeprefix(node_look.MARK))
        return Report(
            driver_python=str(data["python"]),
            alive=int(data["alive"]),
            asked=int(data["asked"]),
            nodes={str(name): _node(report) for name, report in data["nodes"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Report(trouble=f"the doctor's job gave no sound report ({error!r})")


def _node(data: Any) -> NodeReport:
    timeout = data["start_timeout"]
    return NodeReport(
        python=str(data["python"]),
        missing=tuple(str(name) for name in data["missing"]),
        start_timeout=None if timeout is None else str(timeout),
        s3={str(tenant): str(text) for tenant, text in data["s3"].items()},
    )


def _aws_variables(tenant: Tenant) -> dict[str, str]:
    """Where the tenant's jobs look for S3; never a key."""
    variables = tenant.runtime_env.get("env_vars") or {}
    return {name: str(variables[name]) for name in _AWS_VARIABLES if name in variables}


async def _remove(client: RayClient, name: str) -> None:
    """Leave nothing behind. A job that waits in Ray cannot be removed: it starts later, and harms nobody."""
    try:
        status = (await client.job(name)).status
        if not status.is_terminal:
            await client.stop(name)
        for _ in range(_LOOKS):
            status = (await client.job(name)).status
            # A record that is deleted while Ray's monitor still looks at the supervisor comes back when that
            # is gone, as FAILED and without metadata (`JobManager._monitor_job_internal` of Ray 2.60).
            if status is not JobStatus.RUNNING and name not in await client.supervisors():
                break
            await asyncio.sleep(_INTERVAL)
        if status.is_terminal:
            await asyncio.sleep(_SETTLED)
            await client.delete(name)
    except RayTenantError:
        return
