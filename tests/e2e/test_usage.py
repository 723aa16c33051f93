"""A job that holds more than it declared says so in log and XCom; and what all jobs held is summed up."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_raytenant.local.errors import RequestRefused
from stack.stack import Stack
from tests.e2e.runs import finish, jobs, log, start, until


def test_overuse_stands_in_log_and_xcom(stack: Stack, tmp_path: Path) -> None:
    end = tmp_path / "end"
    run_id = start(stack, "holds_more", conf={"end": str(end)})
    seen: dict[str, Any] = {}

    def found_out() -> bool:
        with suppress(RequestRefused):
            seen.update(stack.api.xcom("holds_more", run_id, "hold", "raytenant_usage"))
        return seen.get("peak") == {"cpus": 3.0}

    try:
        # Ray's dashboard looks every 15 s, and we look at that every 10 s or, where it is slow, less often.
        until(found_out, "the peak as an XCom", 180)
    finally:
        end.touch()
    assert finish(stack, "holds_more", run_id) == "success"

    text = log(stack, "holds_more", run_id, "hold")
    assert text.count("The job holds more in Ray than it declared: held up to 3 CPUs; declared 1.") == 1
    assert "Peak use: 3 CPUs, of declared 1 CPU" in text
    (job,) = jobs(stack, run_id, "holds_more")
    usage = stack.api.xcom("holds_more", run_id, "hold", "raytenant_usage")
    assert usage["submission_id"] == job["submission_id"]
    assert (usage["peak"], usage["over"]) == ({"cpus": 3.0}, "held up to 3 CPUs; declared 1")


def test_usage_speaks_of_both_tenants_and_of_how_long_a_job_ran(stack: Stack) -> None:
    runs = {dag_id: start(stack, dag_id) for dag_id in ("whoami_acme", "whoami_globex")}
    assert [finish(stack, dag_id, run_id) for dag_id, run_id in runs.items()] == ["success"] * 2
    answer = json.loads(stack.airflow.cli("raytenant", "usage", "--by", "dag", "-o", "json").stdout)
    rows = {row["dag_id"]: row for row in answer["usage"]}
    for dag_id in runs:
        row = rows[dag_id]
        assert row["tenant"] == dag_id.removeprefix("whoami_")
        assert row["tries"] >= 1
        assert row["slot_hours"] > 0
        assert row["mean_wait_seconds"] >= 0
    usage = stack.api.xcom("whoami_acme", runs["whoami_acme"], "whoami", "raytenant_usage")
    assert 0 < usage["run_seconds"] < rows["whoami_acme"]["slot_hours"] * 3600
    text = stack.airflow.cli("raytenant", "usage", "--since", "1d").stdout
    assert all(f"\n{tenant} " in text for tenant in ("acme", "globex"))
