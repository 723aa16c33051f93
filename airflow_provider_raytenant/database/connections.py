"""Connections: read by the commands, written by ``airflow raytenant local up``."""

from __future__ import annotations

from airflow.models.connection import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_raytenant.exceptions import ConnectionConfigError
from airflow_provider_raytenant.hooks.ray import RayHook, endpoint_of
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint


def read_endpoint(conn_id: str) -> RayEndpoint:
    """The endpoint of a connection, from a secrets backend, the environment or the database.

    A hook asks Airflow's API server, as task code has to; a command has none to ask.

    :raises ConnectionConfigError: there is no such connection, or it is wrong.
    """
    try:
        return endpoint_of(Connection.get_connection_from_secrets(conn_id))
    except AirflowNotFoundException:
        raise ConnectionConfigError(f"connection {conn_id}: found none; allowed: one of type ray") from None


def read_type(conn_id: str) -> str:
    """The type of a connection; empty where it has none.

    :raises ConnectionConfigError: there is no such connection.
    """
    try:
        return Connection.get_connection_from_secrets(conn_id).conn_type or ""
    except AirflowNotFoundException:
        raise ConnectionConfigError(f"connection {conn_id}: found none; allowed: one of type ray") from None


def read_uri(conn_id: str) -> str:
    """A connection of any type, as a URI.

    :raises ConnectionConfigError: there is no such connection.
    """
    try:
        return str(Connection.get_connection_from_secrets(conn_id).get_uri())
    except AirflowNotFoundException:
        raise ConnectionConfigError(
            f"connection {conn_id}: found none; allowed: one that is defined"
        ) from None


def write_ray_connection(conn_id: str, address: str, token: str | None) -> bool:
    """Create or overwrite a connection of type ``ray``; ``False`` if one of another type has the name."""
    with create_session() as session:
        row = session.scalar(select(Connection).where(Connection.conn_id == conn_id))
        if row is not None and row.conn_type != RayHook.conn_type:
            return False
        if row is not None:
            session.delete(row)
            session.flush()
        session.add(Connection(conn_id=conn_id, conn_type=RayHook.conn_type, host=address, password=token))
    return True
