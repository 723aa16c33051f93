"""A small client of Airflow's public REST API, for the demo and the tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from airflow_provider_raytenant.local.errors import NotReady, RequestRefused
from airflow_provider_raytenant.local.http import Answer, request

_T = TypeVar("_T")

FINISHED_RUN = frozenset({"success", "failed"})


class AirflowApi:
    """Speaks as one user, whose token is fetched when first needed and again when it has run out.

    Every method raises ``RequestRefused`` for an error status, ``OSError`` if nobody answers within
    ``timeout`` seconds, and those that wait raise ``NotReady``.
    """

    def __init__(self, base_url: str, user: str, password: str, timeout: float = 30.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._login = {"username": user, "password": password}
        self._timeout = timeout
        self._token: str | None = None

    def token(self) -> str:
        """A bearer token for the API."""
        if self._token is None:
            url = f"{self.base_url}/auth/token"
            answer = request("POST", url, body=self._login, timeout=self._timeout)
            _check("POST", url, answer)
            self._token = str(answer.json()["access_token"])
        return self._token

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The JSON answer to ``/api/v2`` + ``path``; query parameters that are None are left out."""
        given = {key: value for key, value in query.items() if value is not None}
        url = f"{self.base_url}/api/v2{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        answer = request(method, url, token=self.token(), body=body, timeout=self._timeout)
        if answer.status == 401:
            self._token = None
            answer = request(method, url, token=self.token(), body=body, timeout=self._timeout)
        _check(method, url, answer)
        return answer.json() if answer.body else None

    # --- DAGs and runs -------------------------------------------------------------------------------

    def wait_dag(self, dag_id: str, timeout: float = 60.0) -> dict[str, Any]:
        """Wait until the DAG is parsed; ``NotReady`` then shows the import errors."""

        def parsed() -> dict[str, Any] | None:
            try:
                dag: dict[str, Any] = self.call("GET", f"/dags/{_part(dag_id)}/details")
            except RequestRefused as error:
                if error.status == 404:
                    return None
                raise
            return dag

        return _wait(parsed, timeout, f"DAG {dag_id}", lambda: str(self.import_errors()))

    def unpause(self, dag_id: str) -> None:
        self.call("PATCH", f"/dags/{_part(dag_id)}", {"is_paused": False})

    def pause(self, dag_id: str) -> None:
        self.call("PATCH", f"/dags/{_part(dag_id)}", {"is_paused": True})

    def trigger_run(
        self,
        dag_id: str,
        logical_date: datetime | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> str:
        """Start a run, by default without a logical date; returns its run id. The DAG must be unpaused."""
        date = logical_date.astimezone(UTC).isoformat() if logical_date else None
        body = {"logical_date": date, "conf": dict(conf or {})}
        return str(self.call("POST", f"/dags/{_part(dag_id)}/dagRuns", body)["dag_run_id"])

    def dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.call("GET", _run(dag_id, run_id))
        return run

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Up to 1000 runs, the newest first."""
        answer = self.call("GET", f"/dags/{_part(dag_id)}/dagRuns", limit=1000, order_by="-id")
        return list(answer["dag_runs"])

    def wait_run(self, dag_id: str, run_id: str, timeout: float = 120.0) -> dict[str, Any]:
        """Wait until the run has succeeded or failed; ``NotReady`` shows the states of its tasks."""

        def finished() -> dict[str, Any] | None:
            run = self.dag_run(dag_id, run_id)
            return run if run["state"] in FINISHED_RUN else None

        def states() -> str:
            tasks = self.task_instances(dag_id, run_id)
            return ", ".join(f"{task['task_id']}[{task['map_index']}]={task['state']}" for task in tasks)

        return _wait(finished, timeout, f"the end of {dag_id} {run_id}", states)

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Set a run to ``success``, ``failed`` or ``queued``."""
        self.call("PATCH", _run(dag_id, run_id), {"state": state})

    # --- tasks ---------------------------------------------------------------------------------------

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Up to 1000 task instances of a run."""
        answer = self.call("GET", f"{_run(dag_id, run_id)}/taskInstances", limit=1000)
        return list(answer["task_instances"])

    def task_instance(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        task: dict[str, Any] = self.call("GET", _task(dag_id, run_id, task_id, map_index))
        return task

    def wait_task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        states: Sequence[str],
        timeout: float = 60.0,
        map_index: int = -1,
    ) -> dict[str, Any]:
        """Wait until the task is in one of ``states``; ``NotReady`` shows in which it is."""
        latest: dict[str, Any] = {}

        def reached() -> dict[str, Any] | None:
            latest.update(self.task_instance(dag_id, run_id, task_id, map_index))
            return latest if latest["state"] in states else None

        what = f"{dag_id}.{task_id} {'/'.join(states)}"
        return _wait(reached, timeout, what, lambda: f"it is {latest.get('state')}")

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int = -1) -> str:
        """The log of a try as text: a line for each message, then the error's type, text and frames."""
        path = f"{_task(dag_id, run_id, task_id)}/logs/{try_number}"
        answer = self.call("GET", path, full_content="true", map_index=map_index)
        lines: list[str] = []
        for entry in answer["content"]:
            lines.append(entry if isinstance(entry, str) else str(entry["event"]))
            if not isinstance(entry, str):
                for error in entry.get("error_detail") or ():
                    frames = error.get("frames") or ()
                    lines += [f"  {frame['filename']}:{frame['lineno']} {frame['name']}" for frame in frames]
                    lines.append(f"{error['exc_type']}: {error['exc_value']}")
        return "\n".join(lines)

    def xcom(
        self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1
    ) -> Any:
        """The value of an XCom, as the JSON it is stored as."""
        path = f"{_task(dag_id, run_id, task_id)}/xcomEntries/{_part(key)}"
        return self.call("GET", path, map_index=map_index, stringify="false")["value"]

    def clear(self, dag_id: str, run_id: str, task_ids: Sequence[str] | None = None) -> int:
        """Clear tasks of a run (default: all), whatever their state; returns how many."""
        body: dict[str, Any] = {
            "dry_run": False,
            "dag_run_id": run_id,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        if task_ids is not None:
            body["task_ids"] = list(task_ids)
        return int(self.call("POST", f"/dags/{_part(dag_id)}/clearTaskInstances", body)["total_entries"])

    def mark_task(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Set a task to ``success`` or ``failed``, as the button in the UI does."""
        self.call("PATCH", _task(dag_id, run_id, task_id, map_index), {"new_state": state})

    def mark_failed(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> None:
        self.mark_task(dag_id, run_id, task_id, "failed", map_index)

    # --- the deployment ------------------------------------------------------------------------------

    def pools(self) -> dict[str, dict[str, Any]]:
        """All pools by name, with slots and what occupies them."""
        return {pool["name"]: pool for pool in self.call("GET", "/pools", limit=1000)["pools"]}

    def import_errors(self) -> list[dict[str, Any]]:
        return list(self.call("GET", "/importErrors", limit=1000)["import_errors"])

    def create_connection(self, connection_id: str, conn_type: str, **fields: Any) -> None:
        """Make a connection; ``fields`` are the API's: host, port, login, password, schema, extra."""
        body = {"connection_id": connection_id, "conn_type": conn_type, **fields}
        self.call("POST", "/connections", body)


def _part(name: str) -> str:
    return quote(name, safe="")


def _run(dag_id: str, run_id: str) -> str:
    return f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}"


def _task(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    path = f"{_run(dag_id, run_id)}/taskInstances/{_part(task_id)}"
    return path if map_index < 0 else f"{path}/{map_index}"


def _check(method: str, url: str, answer: Answer) -> None:
    if answer.status >= 400:
        raise RequestRefused(method, url, answer.status, answer.body.decode(errors="replace"))


def _wait(ask: Callable[[], _T | None], timeout: float, what: str, explain: Callable[[], str]) -> _T:
    deadline = time.monotonic() + timeout
    while (found := ask()) is None:
        if time.monotonic() >= deadline:
            raise NotReady(what, timeout, explain())
        time.sleep(0.25)
    return found
