"""``airflow raytenant explain`` on two fake clusters: what stands where, and what is refused."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from airflow_provider_raytenant.cli.explain import explain
from airflow_provider_raytenant.control import explaining
from airflow_provider_raytenant.database.waiting import Situation
from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.heartbeat import Heartbeat
from airflow_provider_raytenant.domain.pool_rows import MARK, ExistingPool
from airflow_provider_raytenant.domain.waiting_facts import Holder, Line, RunFacts, TaskFacts
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError, RequestError
from tests.fakes.faults import status
from tests.fakes.world import World, identity

RUN = "scheduled__2026-12-01T00:00:00+00:00"
HOLDER = identity(1, run_id=RUN, dag_id="acme_daily_delays", task_id="statistics", map_index=3)
OWN = identity(2, run_id=RUN, dag_id="acme_daily_delays", task_id="statistics", map_index=4)
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
HELD = "acme_daily_delays.statistics[3]"
POOL = ExistingPool("ray.acme", 16, f"{MARK} for tenant acme; ", occupied=14)


class Airflow:
    """What the database would say; a test changes it."""

    def __init__(self) -> None:
        now = NOW
        self.situation = Situation(
            task=TaskFacts(
                OWN.dag_id,
                RUN,
                OWN.task_id,
                OWN.map_index,
                OWN.ti_id,
                "scheduled",
                pool="ray.acme",
                slots=4,
                scheduled_at=now - timedelta(minutes=12),
            ),
            run=RunFacts(),
            pool=POOL,
            line=Line(3, 7, (2, 4)),
            holders=(
                Holder("ray.acme", 8, HELD, RUN, "deferred", HOLDER.ti_id, now - timedelta(hours=3)),
                *(Holder("ray.acme", 1, f"etl.load[{n}]", RUN, "queued", "", now) for n in range(6)),
                Holder("ray.globex", 5, "model.train", RUN, "deferred", "", now),
            ),
        )
        self.error: Exception | None = None
        self.beats: dict[str, list[Heartbeat]] = {
            name: [Heartbeat("host-a", True, 2.0)]
            for name in ("SchedulerJob", "TriggererJob", "RayTenantController")
        }
        self.asked: list[Any] = []

    def read_situation(self, *asked: Any) -> Situation:
        self.asked.append(asked[:4])
        if self.error is not None:
            raise self.error
        return self.situation

    def task(self, **values: Any) -> None:
        self.situation = replace(self.situation, task=replace(self.situation.task, **values))


@pytest.fixture
def airflow(world: World, monkeypatch: pytest.MonkeyPatch) -> Airflow:
    known = Airflow()
    monkeypatch.setattr(explaining, "read_situation", known.read_situation)
    monkeypatch.setattr(explaining, "read_task_limits", dict)
    monkeypatch.setattr(explaining, "_now", lambda: NOW)
    monkeypatch.setattr(explaining, "read_heartbeats", lambda kind: known.beats.get(kind, []))
    grows = "ray_conn_id: ray_one, autoscale: {max: {cpus: 16, memory: 8GiB}}"
    world.file.write_text(world.file.read_text().replace("ray_conn_id: ray_one", grows))
    world.database.pools["ray.acme"] = POOL
    world.database.demand["ray.acme"] = Demand((2, 4, 4), 90.0)
    world.job(HOLDER)
    world.database.state(HOLDER, "deferred")
    return known


def run(world: World, **arguments: Any) -> None:
    known = {"dag_id": OWN.dag_id, "run_id": RUN, "task_id": OWN.task_id, "map_index": 4}
    explain(Namespace(**{"file": str(world.file), "output": "table", **known, **arguments}))


def refused(world: World, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        run(world)
    assert end.value.code == 1
    out, error = capsys.readouterr()
    assert (out, "Traceback" in error) == ("", False)
    return error


def test_a_task_in_line_in_eighty_columns(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    run(world)
    short = HOLDER.submission_id.rpartition("-")[2][:8]
    assert capsys.readouterr().out.splitlines() == [
        "Waits in line, 3rd of 7: starts when 8 more slots of ray.acme come free; 2 tasks",
        "with 6 slots stand before it.",
        "",
        "task        acme_daily_delays.statistics[4], try 1, scheduled for 12m",
        "run         scheduled__2026-12-01T00:00:00+00:00",
        "request     4 slots of pool ray.acme, tenant acme",
        "line        3rd of 7; before it 2 tasks with 6 slots",
        "pool        16 slots, 14 held, 2 free; at most 16",
        "plan        guarantee 0, weight 1; 3 wait for 10 slots, the first for 1m 30s, 2",
        "            free for that; 16 borrowed; one/cpu: 16 (2 on 1 node, up to 16 by",
        "            autoscaling)",
        "held by     job       slots  since  ray      task",
        f"            {short}      8  3h     RUNNING  acme_daily_delays.statistics[3]",
        "            -             1  0s     queued   etl.load[0]",
        "            -             1  0s     queued   etl.load[1]",
        "            -             1  0s     queued   etl.load[2]",
        "            -             1  0s     queued   etl.load[3]",
        "            and 2 more tasks with 2 slots",
        "-> Nothing is wrong: it starts in its turn. A higher priority_weight brings it",
        "   forward.",
        f"-> To look at the largest: `airflow raytenant jobs show {short}`. If it can be",
        f"   done without: `airflow raytenant jobs stop {short}` (its task then fails).",
    ]


@pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_for_programs_there_is_the_same(
    world: World,
    airflow: Airflow,
    capsys: pytest.CaptureFixture[str],
    output: str,
    parse: Callable[[str], Any],
) -> None:
    run(world, output=output)
    known = parse(capsys.readouterr().out)
    assert (known["verdict"], known["place"], known["of"]) == ("in line", 3, 7)
    assert known["answer"].startswith("Waits in line, 3rd of 7: ")
    assert known["task"]["tenant"] == "acme"
    assert known["held_by"][0]["job"] == HOLDER.submission_id.rpartition("-")[2][:8]
    assert known["held_by"][0]["ray"] == "RUNNING"
    assert {each["about"] for each in known["evidence"]} >= {"task", "run", "request", "line", "pool", "plan"}
    assert airflow.asked == [(OWN.dag_id, RUN, OWN.task_id, 4)]


def test_a_silent_cluster_does_not_keep_the_database_from_answering(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    world.one.outage(status(502))
    run(world)
    out = capsys.readouterr().out
    assert out.startswith("Waits in line, 3rd of 7: starts when 8 more slots of ray.acme come free;")
    assert "cluster     one is silent: Ray at http://127.0.0.1:" in out
    assert "plan  " not in out


def test_a_running_job_is_found_by_its_try(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    airflow.task(state="deferred")
    world.job(OWN, "PENDING")
    world.database.state(OWN, "deferred")
    run(world)
    out = capsys.readouterr().out
    assert out.startswith("Its job waits in Ray, for resources or its environment: submitted ")
    assert "ray says    Job has not started yet." in out
    assert f"-> `airflow raytenant jobs show {OWN.submission_id.rpartition('-')[2][:8]}`" in out
    assert f"/#/jobs/{OWN.submission_id}" in out


def test_a_task_in_another_pool_is_looked_for_on_every_cluster(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    airflow.task(state="running", pool="default_pool")
    world.job(OWN, ray=world.two)
    run(world, output="json")
    known = json.loads(capsys.readouterr().out)
    assert (known["verdict"], known["task"]["tenant"]) == ("job runs", "acme")


def test_what_needs_no_cluster_asks_none(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    world.one.outage(status(502))
    airflow.task(state="success", ended_at=NOW - timedelta(minutes=5, seconds=1))
    run(world)
    out = capsys.readouterr().out
    assert out.startswith("Ended 5m 1s ago: it succeeded in try 1.\n\n")
    assert "silent" not in out


def test_slots_of_jobs_whose_task_is_over_are_nobodys(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    world.job(identity(9))
    run(world)
    assert "nobody's    2 slots held by jobs whose task is over" in capsys.readouterr().out


def test_a_request_that_is_too_large_can_never_run(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    airflow.task(slots=400)
    run(world)
    out = capsys.readouterr().out
    assert out.startswith(
        "Can never start: it asks for 400 slots, and 16, all that one/cpu has today, is\nthe most"
    )


def test_a_limit_of_the_file_is_named(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    world.file.write_text(world.file.read_text().replace("acme: {}", "acme: {limit: 3}"))
    run(world, output="json")
    known = json.loads(capsys.readouterr().out)
    assert (known["verdict"], "3, the limit of tenant acme" in known["answer"]) == ("never", True)


@pytest.mark.parametrize(
    "error",
    [
        RequestError("TASK_ID: found 'x'; allowed: the tasks of the run: load"),
        DatabaseUnavailableError("Airflow's database: connection refused"),
    ],
)
def test_what_cannot_be_answered_is_one_clear_error(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    airflow.error = error
    assert refused(world, capsys) == f"{error}\n"


def test_a_wrong_tenant_file_is_one_clear_error(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    world.file.write_text("deployment: prod\nclusters: {}\ntenants: {}\n")
    assert "clusters: found" in refused(world, capsys)


def test_long_names_do_not_break_a_command(
    world: World, airflow: Airflow, capsys: pytest.CaptureFixture[str]
) -> None:
    airflow.situation = replace(airflow.situation, run=RunFacts(is_paused=True))
    airflow.task(dag_id="a_very_long_name_of_a_dag_" + "x" * 60)
    run(world)
    assert f"-> `airflow dags unpause {airflow.situation.task.dag_id}`\n" in capsys.readouterr().out
