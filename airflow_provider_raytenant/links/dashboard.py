"""The link from a task to its job on Ray's dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class RayJobLink(BaseOperatorLink):
    """Opens the job's page, under the connection's ``public_address``."""

    name = "Ray job"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The page's address. Airflow asks on the worker, when ``execute`` defers or ends, and stores it."""
        return str(getattr(operator, "job_page", ""))
