"""A dashboard behind TLS: a CA of its own, and a proxy that asks for a client certificate."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from airflow_provider_raytenant.exceptions import RayUnavailableError
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint


@dataclass(frozen=True)
class Files:
    """PEM files of a CA and of a client that it vouches for, certificate and key apart."""

    ca: str
    client_cert: str
    client_key: str


@dataclass(frozen=True)
class Server:
    address: str
    files: Files


@pytest.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """A TLS server that answers the version; with the parameter ``True`` it asks for a certificate."""
    ca = trustme.CA()
    files = Files(*(str(tmp_path / name) for name in ("ca.pem", "client.pem", "client.key")))
    ca.cert_pem.write_to_path(files.ca)
    client = ca.issue_cert("worker@example.org")
    client.cert_chain_pems[0].write_to_path(files.client_cert)
    client.private_key_pem.write_to_path(files.client_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    if getattr(request, "param", False):
        ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"ray_version": "2.60.0"})

    app = web.Application()
    app.router.add_get("/api/version", version)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield Server(f"https://127.0.0.1:{runner.addresses[0][1]}", files)
    await runner.cleanup()


async def version_of(endpoint: RayEndpoint) -> str:
    async with RayClient(endpoint, attempts=1) as client:
        return str((await client.version())["ray_version"])


async def test_a_ca_of_ones_own_is_trusted_when_it_is_named(server: Server) -> None:
    assert await version_of(RayEndpoint(server.address, ca_file=server.files.ca)) == "2.60.0"


async def test_an_unknown_certificate_is_refused(server: Server) -> None:
    with pytest.raises(RayUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        await version_of(RayEndpoint(server.address))


async def test_verification_can_be_switched_off(server: Server) -> None:
    assert await version_of(RayEndpoint(server.address, verify=False)) == "2.60.0"


@pytest.mark.parametrize("server", [True], indirect=True)
async def test_a_client_certificate_is_shown_where_one_is_asked_for(server: Server) -> None:
    files = server.files
    with pytest.raises(RayUnavailableError):
        await version_of(RayEndpoint(server.address, ca_file=files.ca))
    shown = RayEndpoint(
        server.address, ca_file=files.ca, client_cert=files.client_cert, client_key=files.client_key
    )
    assert await version_of(shown) == "2.60.0"
