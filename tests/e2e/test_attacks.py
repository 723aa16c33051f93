"""A hostile job of one tenant against another's storage, tickets, secrets and processes.

Every attempt is a row of a table. What is not refused is listed in docs/security.md, with the same reason.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stack.stack import Stack
from tests.e2e.runs import finish, jobs, log, start, until

LEAST = 40
SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
SECRET = b"a secret of acme"
TARGET = "tenants/acme/secret.txt"


def exists(stack: Stack, key: str) -> bool:
    assert stack.s3 is not None
    found = stack.s3.client().list_objects_v2(Bucket=stack.s3.bucket, Prefix=key)
    return bool(found.get("KeyCount"))


def status(stack: Stack, dag_id: str, run_id: str) -> str:
    return next((str(job["status"]) for job in jobs(stack, run_id, dag_id)), "none")


@pytest.fixture(scope="module")
def rows(stack: Stack) -> list[dict[str, str]]:
    """What came of every attempt; the victims' ends are looked at here as well."""
    assert stack.s3 is not None
    stack.s3.client().put_object(Bucket=stack.s3.bucket, Key=TARGET, Body=SECRET)
    ended = start(stack, "victim_ended")
    holds = start(stack, "victim_holds")
    assert finish(stack, "victim_ended", ended) == "success", log(stack, "victim_ended", ended, "end")
    until(lambda: status(stack, "victim_holds", holds) == "RUNNING", "the victim's job runs", 120)
    attacker = start(stack, "attacker")
    until(lambda: exists(stack, "tenants/ac/hogging"), "the attacker has taken all CPUs", 200)
    waits = start(stack, "victim_waits")
    state = finish(stack, "attacker", attacker)
    assert state == "success", log(stack, "attacker", attacker, "attack")
    found: list[dict[str, str]] = stack.api.xcom("attacker", attacker, "attack")
    for dag_id, run_id, task_id, error in (
        ("victim_waits", waits, "wait", "TicketLostError"),
        ("victim_holds", holds, "hold", "JobStoppedError"),
    ):
        assert finish(stack, dag_id, run_id) == "failed"
        failure: Any = stack.api.xcom(dag_id, run_id, task_id, "raytenant_failure")
        assert failure["error"] == error, failure
    return found


def test_every_attempt_is_refused_or_known_to_be_open(rows: list[dict[str, str]]) -> None:
    print("\n" + "\n".join(table(rows)))
    assert len(rows) >= LEAST
    wrong = [row for row in rows if row["outcome"] != ("done" if row["open"] else "refused")]
    assert wrong == []
    counts = Counter(row["outcome"] for row in rows)
    assert counts["refused"] >= LEAST


def test_what_is_open_stands_in_the_document_with_its_reason(rows: list[dict[str, str]]) -> None:
    text = " ".join(SECURITY.read_text().split())
    reasons = {row["open"] for row in rows if row["open"]}
    assert [reason for reason in reasons if reason not in text] == []


def test_the_victims_object_is_as_it_was(stack: Stack, rows: list[dict[str, str]]) -> None:
    assert stack.s3 is not None
    body = stack.s3.client().get_object(Bucket=stack.s3.bucket, Key=TARGET)["Body"].read()
    assert body == SECRET
    assert not exists(stack, "tenants/acme/new")


def table(rows: list[dict[str, str]]) -> list[str]:
    """The rows for people: what was tried, what came of it, how or why."""
    width = max(len(row["what"]) for row in rows)
    return [
        f"{'attempt':{width}}  outcome  how, or why it is open",
        *(f"{row['what']:{width}}  {row['outcome']:7}  {row['open'] or row['how']}" for row in rows),
    ]
