"""What the contract tests share: an open client of a fake dashboard or of a real cluster."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.stopping import stop_job
from tests.fakes.prefix_proxy import PrefixProxy
from tests.fakes.ray_server import FakeRay

TOKEN = "a-token-that-nobody-may-see"
PREFIX = "/some/prefix"
BOUND_SECONDS = 90.0


@dataclass
class Contract:
    """An open client of whatever dashboard is under test; removes the jobs it started."""

    client: RayClient
    real: bool
    started: list[str] = field(default_factory=list)

    @property
    def endpoint(self) -> RayEndpoint:
        return self.client.endpoint

    def request(self, entrypoint: str, **more: Any) -> dict[str, Any]:
        name = f"contract-{uuid.uuid4().hex[:12]}"
        self.started.append(name)
        return {"submission_id": name, "entrypoint": entrypoint, "entrypoint_num_cpus": 0.1, **more}

    async def submit(self, entrypoint: str, **more: Any) -> str:
        request = self.request(entrypoint, **more)
        assert await self.client.submit(request) is True
        return str(request["submission_id"])

    async def until(self, submission_id: str, *wanted: JobStatus) -> JobInfo:
        async with asyncio.timeout(BOUND_SECONDS):
            while (job := await self.client.job(submission_id)).status not in wanted:
                assert not job.status.is_terminal, job
                await asyncio.sleep(0.05)
        return job

    async def ended(self, submission_id: str) -> JobInfo:
        return await self.until(submission_id, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED)


async def opened(stack: AsyncExitStack, address: str | None, behind_a_prefix: bool) -> Contract:
    real = address is not None
    if address is None:
        address = (await stack.enter_async_context(FakeRay(token=TOKEN, plays=True))).address
    if behind_a_prefix:
        address = (await stack.enter_async_context(PrefixProxy(address, PREFIX))).address
        assert address.endswith(PREFIX)
    client = await stack.enter_async_context(RayClient(RayEndpoint(address, token=TOKEN)))
    contract = Contract(client, real)
    stack.push_async_callback(remove, contract)
    return contract


async def remove(contract: Contract) -> None:
    for name in contract.started:
        await stop_job(contract.client, name, patience=30)
