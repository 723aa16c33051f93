"""Connections: written by ``airflow raytenant local up``."""

from __future__ import annotations

from airflow.models.connection import Connection
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_raytenant.hooks.ray import RayHook


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
