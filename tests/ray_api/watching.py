"""A watch in the background, with all that it said."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.domain.lifecycle import Limits
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.poller import JobPoller
from airflow_provider_raytenant.ray_api.shared import SharedCluster
from airflow_provider_raytenant.ray_api.use_watch import UseTold
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings

REQUEST: dict[str, Any] = {
    "submission_id": "j",
    "entrypoint": "python -m raytenant_runner -- python x.py",
    "metadata": {METADATA_PREFIX + "tenant": "acme"},
}


def shared(client: RayClient) -> SharedCluster:
    """A cluster whose client the test has opened."""
    return SharedCluster(client, JobPoller(client))


class Watched:
    """``JobWatch.run`` in a task of its own; ``lines`` is the job's output, ``notes`` the rest."""

    def __init__(
        self,
        client: RayClient,
        *,
        request: dict[str, Any] | None = None,
        use: UseTold | None = None,
        **settings: Any,
    ) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        more = {
            name: settings.pop(name)
            for name in ("skip_on", "prepared_at", "needs_result", "on_overuse")
            if name in settings
        }
        claim = settings.pop("claim", None)
        watch = JobWatch(
            shared(client),
            request or REQUEST,
            WatchSettings(Limits(**settings), **more),
            self.lines.append,
            self.notes.append,
            claim=claim,
            use=use,
        )
        self.task: asyncio.Task[Outcome] = asyncio.create_task(watch.run())

    async def outcome(self, seconds: float = 20.0) -> Outcome:
        """What ``run`` returns, or raises, within a bound."""
        return await asyncio.wait_for(self.task, seconds)

    def noted(self, text: str) -> bool:
        return any(text in note for note in self.notes)


def following() -> bool:
    """Whether the log of job ``j`` is being followed."""
    return any(task.get_name() == "log of j" for task in asyncio.all_tasks())
