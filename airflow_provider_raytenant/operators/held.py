"""Which job a try is about, in Airflow's task state store: it outlives the try, its worker and a clear.

The next try finds there a job that Ray may not know yet, because the trigger that is to submit it was stopped
in that very moment; and, where the worker waits for the job, the job of a worker that died.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_raytenant.domain.adoption import STORE_KEY, Marks, held

if TYPE_CHECKING:
    from airflow.sdk import Context


class HeldJob:
    """The note of one task. Without the store (under ``dag.test()``) nothing is kept, and no try adopts."""

    def __init__(self, context: Context, log: Any) -> None:
        ti: Any = context["ti"]
        run: Any = context.get("dag_run")
        self.marks = Marks(ti.try_number, ti.max_tries or 0, getattr(run, "clear_number", None) or 0)
        self._store: Any = context.get("task_state_store")
        self._log = log

    def read(self) -> Any:
        """What an earlier try left; ``None`` where there is nothing."""
        return self._call("read", "get", STORE_KEY)

    def write(self, submission_id: str) -> None:
        """This try is about this job."""
        self._call("written", "set", STORE_KEY, held(submission_id, self.marks))

    def forget(self) -> None:
        """The job's end has been seen."""
        self._call("cleared", "delete", STORE_KEY)

    def _call(self, what: str, method: str, *arguments: Any) -> Any:
        if self._store is None:
            return None
        try:
            return getattr(self._store, method)(*arguments)
        except AirflowRuntimeError as error:
            self._log.warning("The task state store cannot be %s: %s", what, error)
            return None
