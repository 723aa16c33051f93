"""Facts of a task to be explained: scheduled, in the line of a pool of acme's, with all processes alive."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_raytenant.domain.explain import explain
from airflow_provider_raytenant.domain.explanation import Explanation
from airflow_provider_raytenant.domain.heartbeat import Heartbeat
from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.pool_rows import MARK, Change, ExistingPool, PlannedPool
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.waiting_facts import (
    Facts,
    Holder,
    JobFacts,
    Line,
    PlanFacts,
    Processes,
    TaskFacts,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ALIVE = (Heartbeat("host-a", True, 2.0),)
DEAD = (Heartbeat("host-b", True, 600.0),)
PROCESSES = Processes(ALIVE, ALIVE, ALIVE)
DESCRIPTION = f"{MARK} for tenant acme, group cpu; one slot is 1 CPU + 4GiB; `... sync` writes it"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def planned(**more: Any) -> PlannedPool:
    known: dict[str, Any] = {
        "name": "ray.acme",
        "now": 12,
        "wanted": 12,
        "occupied": 11,
        "why": "guarantee 8, weight 1; 7 wait for 21 slots, 1 free for that; shared/cpu: 16 (16 on 1 node)",
        "description": DESCRIPTION,
        "change": Change.NONE,
        "most": 16,
        "shares": "shared/cpu",
    }
    return PlannedPool(**{**known, **more})


def pool(slots: int = 12, occupied: int = 11, **more: Any) -> ExistingPool:
    return ExistingPool(
        **{"name": "ray.acme", "description": DESCRIPTION, **more}, slots=slots, occupied=occupied
    )


def task(state: str | None = "scheduled", **more: Any) -> TaskFacts:
    known: dict[str, Any] = {
        "dag_id": "etl",
        "run_id": "scheduled__2026-12-01",
        "task_id": "load",
        "map_index": 3,
        "state": state,
        "pool": "ray.acme",
        "slots": 4,
        "operator": "RayTenantJobOperator",
        "scheduled_at": ago(725),
        "queued_at": ago(30),
        "started_at": ago(20),
    }
    return TaskFacts(**{**known, **more})


def job(status: str = "RUNNING", **more: Any) -> JobFacts:
    info = JobInfo(
        "acme-etl-load-try1-e710f6b7", JobStatus(status), start_time=int(ago(125).timestamp() * 1000)
    )
    return JobFacts("e710f6b7", "shared", replace(info, **more))


def facts(of: TaskFacts | None = None, **more: Any) -> Facts:
    known: dict[str, Any] = {
        "pool": pool(),
        "tenant": "acme",
        "plan": PlanFacts(planned()),
        "line": Line(3, 7, (2, 4)),
        "processes": PROCESSES,
        "holders": [
            Holder(
                "ray.acme",
                8,
                "daily.stats[3]",
                "run",
                "deferred",
                "u1",
                ago(725),
                "e710f6b7",
                "acme",
                "RUNNING",
            ),
            Holder("ray.acme", 3, "daily.sums", "run", "queued", "u2", ago(5)),
            Holder(
                "ray.globex",
                4,
                "model.train",
                "run",
                "deferred",
                "u3",
                ago(60),
                "aa00bb11",
                "globex",
                "PENDING",
            ),
        ],
    }
    return Facts(NOW, of or task(), **{**known, **more})


def explained(of: TaskFacts | None = None, **more: Any) -> Explanation:
    return explain(facts(of, **more))


def evidence(found: Explanation) -> dict[str, str]:
    return dict(found.evidence)
