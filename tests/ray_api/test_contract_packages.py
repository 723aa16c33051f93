"""What keeps tenants' packages apart: Ray knows an installed environment by its `pip` or `uv` alone."""

from __future__ import annotations

import asyncio
import threading
import zipfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_raytenant.domain.runtime_env import apart
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from tests.ray_api.contract import Contract, opened

pytestmark = pytest.mark.stack

VARIABLE = {"pip": "PIP_INDEX_URL", "uv": "UV_INDEX_URL"}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def index(folder: Path, content: str) -> Iterator[str]:
    """The address of a package index with one wheel: `whose` 1.0, whose `INDEX` is ``content``."""
    home = folder / content / "whose"
    home.mkdir(parents=True)
    info = "whose-1.0.dist-info"
    files = {
        "whose.py": f"INDEX = {content!r}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: whose\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(home / "whose-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(home.parent)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


async def gets(ray: Contract, env: dict[str, Any], wanted: str) -> bool:
    """Whether a job with this environment finds the wheel of the ``wanted`` index."""
    program = f"import sys, whose; sys.exit(0 if whose.INDEX == {wanted!r} else 7)"
    job = await ray.ended(await ray.submit(f'python -c "{program}"', runtime_env=env))
    assert job.status is JobStatus.SUCCEEDED or job.exit_code == 7, job
    return job.status is JobStatus.SUCCEEDED


@pytest.mark.parametrize("installer", ["pip", "uv"])
async def test_one_tenants_index_never_serves_another(
    cluster: RayCluster, tmp_path: Path, installer: str
) -> None:
    with index(tmp_path, "acme") as first, index(tmp_path, "globex") as second:
        async with AsyncExitStack() as stack:
            ray = await opened(stack, cluster.dashboard_url, False)
            envs = [
                {installer: ["whose==1.0"], "env_vars": {VARIABLE[installer]: address}}
                for address in (first, second)
            ]
            # The fact: whoever comes second gets what the first one's index served.
            assert await gets(ray, envs[0], "acme")
            assert await gets(ray, envs[1], "acme")
            # What we do about it.
            mine, theirs = (apart(env, f"test/{n}") for env, n in zip(envs, ("acme", "globex"), strict=True))
            assert await asyncio.gather(gets(ray, mine, "acme"), gets(ray, theirs, "globex")) == [True, True]
            # ... also where nothing but the tenant differs, and for an option instead of an env_var.
            option = {
                "packages": ["whose==1.0"],
                f"{installer if installer == 'pip' else 'uv_pip'}_install_options": ["--index-url", second],
            }
            assert await gets(ray, apart({installer: option}, "test/acme"), "globex")
            assert await gets(ray, mine, "acme")
