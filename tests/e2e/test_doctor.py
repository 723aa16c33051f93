"""The doctor on the running stack: what it finds there, and that it leaves nothing behind."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_raytenant.checks.probe import ID_PREFIX
from stack.stack import Stack


def test_the_doctor_finds_the_stack_as_it_is_and_leaves_nothing_behind(stack: Stack) -> None:
    answer = stack.airflow.cli("raytenant", "doctor", "--output", "json", check=False)
    found = json.loads(answer.stdout)

    def level(check: str, tenant: str | None = None) -> str:
        line: dict[str, Any] = next(
            line for line in found["findings"] if (line["check"], line["tenant"]) == (check, tenant)
        )
        return str(line["level"])

    right = "tenant file,triggerer,connection,TLS,authentication,Ray version,jobs API,nodes,group cpu,jobs"
    assert {check: level(check) for check in right.split(",")} == dict.fromkeys(right.split(","), "ok")
    assert (level("Python"), level("packages"), level("start time-out")) == ("ok", "ok", "ok")
    assert (level("S3", "acme"), level("S3", "globex"), level("credentials", "acme")) == ("ok", "ok", "ok")
    # The stack's one node is its head.
    assert level("head") == "warning"
    assert answer.returncode == (1 if found["failures"] else 0)
    names = [job["submission_id"] or "" for job in stack.ray.api("GET", "/api/jobs/")]
    assert [name for name in names if name.startswith(ID_PREFIX)] == []
