"""Where a trigger says what its job holds, and keeps it for the trigger after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_raytenant.domain.usage import USAGE_KEY
from airflow_provider_raytenant.ray_api.use_watch import UseTold
from airflow_provider_raytenant.triggers.task import OwnTask


def use_told(task: OwnTask | None, submission_id: str, log: Any) -> UseTold:
    """Warnings into the task's log, the peak into its XCom ``raytenant_usage`` while the job runs.

    :param task: ``None`` under ``dag.test()``: nothing is kept.
    """

    def warn(text: str) -> None:
        log.warning("%s", text)

    if task is None:
        return UseTold(warn)

    async def load() -> Any:
        try:
            saved = await task.xcom(USAGE_KEY)
        except Exception as error:
            log.info("What the job held before cannot be read (%s).", error)
            return None
        # Another try of the task may have left one, and one without a peak says nothing of what was held.
        own = isinstance(saved, Mapping) and saved.get("submission_id") == submission_id and "peak" in saved
        return saved if own else None

    async def save(usage: dict[str, Any]) -> None:
        try:
            await task.set_xcom(USAGE_KEY, usage)
        except Exception as error:
            log.info("What the job holds cannot be kept just now (%s).", error)

    return UseTold(warn, load, save)
