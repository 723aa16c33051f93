"""A session of Airflow's database whose troubles are errors of our tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.utils.session import create_session
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from airflow_provider_raytenant.exceptions import DatabaseUnavailableError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@contextmanager
def database_session() -> Iterator[Session]:
    """A session that commits at its end.

    :raises DatabaseUnavailableError: the database gave no answer, or not this one.
    """
    try:
        with create_session() as session:
            yield session
    except SQLAlchemyError as error:
        # Its own text goes on for lines: the statement, the parameters, a link.
        reason = str(getattr(error, "orig", None) or error)
        raise DatabaseUnavailableError(f"Airflow's database: {' '.join(reason.split())[:300]}") from error


def ask_database() -> None:
    """See that it answers.

    :raises DatabaseUnavailableError: it does not.
    """
    with database_session() as session:
        session.execute(text("SELECT 1"))
