"""Connection type ``ray``: the dashboard's address and what it takes to speak to it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from airflow_provider_raytenant.domain.quantities import format_count, format_memory
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.exceptions import ConnectionConfigError, RayRequestError, RayTenantError
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint, checked_address

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_raytenant.ray_api.client import RayClient

KNOWN_EXTRAS = ("public_address", "headers", "verify", "ca_file", "client_cert", "client_key")


class RayHook(BaseHook):
    """Gives clients of one Ray dashboard.

    :param ray_conn_id: an Airflow connection of type ``ray``, for example ``ray_shared``.

    The connection's fields: *host* is the dashboard's address (``http://head:8265``, or a proxy's with
    a path prefix), *password* the cluster's token. Extras: ``public_address`` (for people's browsers),
    ``headers`` (a JSON object), ``verify`` (true or false), ``ca_file``, ``client_cert``, ``client_key``.
    """

    conn_name_attr = "ray_conn_id"
    default_conn_name = "ray_default"
    conn_type = "ray"
    hook_name = "Ray"

    def __init__(self, ray_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.ray_conn_id = ray_conn_id

    def get_conn(self) -> RayClient:
        """A client to use in ``async with``.

        :raises ConnectionConfigError: the connection is wrong.
        """
        from airflow_provider_raytenant.ray_api.client import RayClient

        return RayClient(self.endpoint())

    def endpoint(self) -> RayEndpoint:
        """The endpoint of the connection, read synchronously (on a worker, in the CLI)."""
        return endpoint_of(self.get_connection(self.ray_conn_id))

    async def aendpoint(self) -> RayEndpoint:
        """The endpoint of the connection, read in an event loop (in a triggerer)."""
        return endpoint_of(await self.aget_connection(self.ray_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """What the button of the connection form shows: Ray's version, authentication, nodes, CPU, memory."""
        try:
            return True, asyncio.run(self._describe())
        except RayTenantError as error:
            return False, str(error)

    async def _describe(self) -> str:
        async with self.get_conn() as client:
            try:
                version = (await client.version()).get("ray_version")
            except RayRequestError as error:
                raise ConnectionConfigError(
                    f"this is no Ray dashboard, or its path is another: {error}"
                ) from error
            if not version:
                raise ConnectionConfigError(f"{client.endpoint.address} answers, but not as a Ray dashboard")
            nodes = await client.nodes()
            secured = await client.wants_token()
        total = sum((node.total for node in nodes), Resources())
        plural = "node" if len(nodes) == 1 else "nodes"
        return (
            f"Ray {version}, authentication {'on' if secured else 'off'}, {len(nodes)} {plural}, "
            f"{format_count(total.cpus)} CPU, {format_memory(total.memory)} memory"
            + (f", {format_count(total.gpus)} GPU" if total.gpus else "")
        )


def endpoint_of(connection: Connection) -> RayEndpoint:
    """The endpoint that an Airflow connection describes.

    :raises ConnectionConfigError: naming the field, what was found and what is allowed.
    """
    where = f"connection {connection.conn_id}"
    extra = _extra(connection, where)
    unknown = sorted(set(extra) - set(KNOWN_EXTRAS))
    if unknown:
        raise ConnectionConfigError(
            f"{where}: extra {unknown[0]!r}: found an unknown key; allowed: {', '.join(KNOWN_EXTRAS)}"
        )
    try:
        public = _text(extra, "public_address")
        return RayEndpoint(
            address=checked_address("host", _address(connection)),
            public_address=checked_address("public_address", public) if public else "",
            token=_token(connection),
            headers=_headers(extra.get("headers")),
            verify=_verify(extra.get("verify")),
            ca_file=_text(extra, "ca_file") or None,
            client_cert=_text(extra, "client_cert") or None,
            client_key=_text(extra, "client_key") or None,
        )
    except ConnectionConfigError as error:
        raise ConnectionConfigError(f"{where}: {error}") from None


def _extra(connection: Connection, where: str) -> dict[str, Any]:
    """The extra as an object. Airflow itself takes one that is no JSON for an empty one."""
    extra = connection.extra_dejson
    if connection.extra and not extra:
        try:
            extra = json.loads(connection.extra)
        except ValueError:
            raise ConnectionConfigError(f"{where}: extra: found no JSON; allowed: a JSON object") from None
    if not isinstance(extra, dict):
        raise ConnectionConfigError(f"{where}: extra: found something else; allowed: a JSON object")
    return extra


def _address(connection: Connection) -> str:
    """The address from the host field alone, or put together from scheme, host and port."""
    host = (connection.host or "").strip()
    if not host:
        raise ConnectionConfigError("host: found nothing; allowed: the dashboard's address, http://head:8265")
    port = f":{connection.port}" if connection.port else ""
    if "://" not in host:
        return f"{connection.schema or 'http'}://{host}{port}"
    # Airflow takes the URI ray://https://proxy:8443/ray apart: host https://proxy, port 8443, schema ray.
    scheme, _, rest = host.partition("://")
    place, slash, path = rest.partition("/")
    if not re.search(r":\d+$", place):
        place += port
    prefix = f"/{connection.schema}" if connection.schema and not path else ""
    return f"{scheme}://{place}{prefix or slash + path}"


def _token(connection: Connection) -> str | None:
    """The token, without the newline that a file or a paste may bring along."""
    token = (connection.password or "").strip()
    if not token.isprintable():
        raise ConnectionConfigError("password: found a control character; allowed: the cluster's token")
    return token or None


def _verify(value: Any) -> bool:
    """True or false; as text too, since an Airflow URI (``?verify=false``) can hold nothing else."""
    if isinstance(value, str):
        value = {"true": True, "false": False, "": None}.get(value.strip().lower(), value)
    if value is not None and not isinstance(value, bool):
        raise ConnectionConfigError(f"verify: found {value!r}; allowed: true or false")
    return value is not False


def _text(extra: Mapping[str, Any], key: str) -> str:
    value = extra.get(key)
    if value is not None and not isinstance(value, str):
        raise ConnectionConfigError(f"{key}: found {value!r}; allowed: text")
    return (value or "").strip()


def _headers(value: Any) -> dict[str, str]:
    """Extra headers from a JSON object; their values may be secrets, so no error shows them."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except ValueError:
            raise ConnectionConfigError('headers: found no JSON; allowed: {"X-Name": "value"}') from None
    value = {} if value is None else value
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ConnectionConfigError('headers: found something else; allowed: {"X-Name": "value"}')
    if not all(name.isprintable() and text.isprintable() for name, text in value.items()):
        raise ConnectionConfigError('headers: found a control character; allowed: {"X-Name": "value"}')
    for text in value.values():
        # The form stores them as one text, whose parts Airflow's masker does not look into.
        mask_secret(text)
    return value
