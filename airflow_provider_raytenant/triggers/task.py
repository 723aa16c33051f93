"""The trigger's view of its own task: its XComs and its state, by way of the triggerer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX


@dataclass(frozen=True)
class OwnTask:
    """The task that a job belongs to, by the job's metadata."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Self:
        """From the metadata of a request of ours."""
        dag_id, run_id, task_id, map_index = (
            metadata[METADATA_PREFIX + name] for name in ("dag_id", "run_id", "task_id", "map_index")
        )
        return cls(dag_id, run_id, task_id, int(map_index))

    async def set_xcom(self, key: str, value: Any) -> None:
        """Set an XCom. One that travels inside an end event arrives encoded twice (tried on 3.3.2)."""
        await XCom.aset(
            key, value, dag_id=self.dag_id, task_id=self.task_id, run_id=self.run_id, map_index=self.map_index
        )

    async def xcom(self, key: str) -> Any:
        """An XCom of the task; ``None`` where there is none."""
        return await XCom.aget_one(
            key=key,
            dag_id=self.dag_id,
            task_id=self.task_id,
            run_id=self.run_id,
            map_index=self.map_index,
        )

    async def state(self) -> str | None:
        """The state of the task now; ``None`` when it has none, or Airflow does not know it (any more).

        The first such question after a triggerer's start takes 4 to 5 s, in which that triggerer's events
        wait (tried on 3.3.2): it has no place where somebody waits for the answer.

        :raises RuntimeError: Airflow gave no answer.
        """
        from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        question = GetTaskStates(
            dag_id=self.dag_id,
            task_ids=[self.task_id],
            run_ids=[self.run_id],
            map_index=None if self.map_index < 0 else self.map_index,
        )
        answer = await SUPERVISOR_COMMS.asend(question)
        if not isinstance(answer, TaskStatesResult):
            raise RuntimeError(f"Airflow gave no task state, but {answer!r}")
        key = self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"
        state = answer.task_states.get(self.run_id, {}).get(key)
        return None if state is None else str(getattr(state, "value", state))
