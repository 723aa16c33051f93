"""A follower of job ``j`` with all that it emitted, noted and saved, in one list in its order."""

from __future__ import annotations

from typing import Any

from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.log_follower import LogFollower
from airflow_provider_raytenant.ray_api.log_position import LogPosition
from airflow_provider_raytenant.ray_api.log_reads import LogReads
from tests.fakes.ray_server import HEAD

FILE, TEXT = "/api/v0/logs/file", "/api/jobs/j/logs"


class Follow:
    """``lines`` is the job's output, ``notes`` what the follower says of itself, ``saved`` positions."""

    def __init__(self, client: RayClient, *, reads: LogReads | None = None, **options: Any) -> None:
        self.said: list[str | LogPosition] = []
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.saved: list[LogPosition] = []
        self.follower = LogFollower(
            client, "j", self._emit, self._note, reads=reads or LogReads(), **{"save": self._save, **options}
        )

    def start(self, node_id: str | None = HEAD) -> Follow:
        self.follower.start(node_id)
        return self

    async def finish(self, node_id: str | None = HEAD) -> list[str]:
        await self.follower.finish(node_id)
        return self.lines

    def noted(self, text: str) -> bool:
        return any(text in note for note in self.notes)

    def _emit(self, line: str) -> None:
        self.said.append(line)
        self.lines.append(line)

    def _note(self, note: str) -> None:
        self.said.append(f"# {note}")
        self.notes.append(note)

    async def _save(self, position: LogPosition) -> None:
        self.said.append(position)
        self.saved.append(position)
