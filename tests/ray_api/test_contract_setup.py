"""What a retry after a failed environment relies on: Ray keeps failures, by the content of the whole."""

from __future__ import annotations

import zipfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from tests.ray_api.contract import opened

pytestmark = pytest.mark.stack


async def test_the_next_try_is_not_served_from_rays_cache_of_failures(
    cluster: RayCluster, tmp_path: Path
) -> None:
    archive = tmp_path / "code.zip"
    async with AsyncExitStack() as stack:
        ray = await opened(stack, cluster.dashboard_url, False)

        async def outcome_of(try_number: int) -> str | JobStatus:
            env = {
                "working_dir": archive.as_uri(),
                "env_vars": {"RAYTENANT_TRY_NUMBER": str(try_number)},
            }
            job = await ray.ended(await ray.submit("true", runtime_env=env))
            return job.error_type or job.status

        assert await outcome_of(1) == "RUNTIME_ENV_SETUP_FAILURE"
        with zipfile.ZipFile(archive, "w") as content:
            content.writestr("code.py", "print(1)")
        assert await outcome_of(1) == "RUNTIME_ENV_SETUP_FAILURE"
        assert await outcome_of(2) == JobStatus.SUCCEEDED
