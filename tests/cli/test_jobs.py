"""``airflow raytenant jobs`` on two fake clusters: what it prints, what it does, what it leaves alone."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from airflow_provider_raytenant.cli import jobs
from airflow_provider_raytenant.control import clusters, sweeper
from airflow_provider_raytenant.domain.job_spec import TryIdentity
from airflow_provider_raytenant.ray_api import stopping
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes.faults import status
from tests.fakes.world import World, identity

SUBMITTED = 1_700_000_000
"""Seconds since the epoch at which every job of a fake was submitted; it ended a second later."""

RUN = "manual__2026-12-01T08:43:57.123456+00:00_x8Kd91aQ"
WANTED = identity(1, run_id=RUN, dag_id="acme_daily_delays", task_id="statistics", map_index=3)
CLEARED = identity(2)
RETRIED = identity(3, tenant="globex", dag_id="delay_model", task_id="train")
ENDED = identity(4, tenant="globex", dag_id="delay_model", task_id="score")


@pytest.fixture
def full(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A wanted job and three that nobody wants any more, one of which has ended."""
    world.job(WANTED, footprint='{"cpus": 3, "memory": 1610612736}')
    world.database.state(WANTED, "deferred")
    world.job(CLEARED, "PENDING")
    world.database.state(CLEARED, None, ti_id="another")
    world.job(RETRIED, ray=world.two)
    world.database.state(RETRIED, "running", ti_id="another", try_number=2)
    world.job(ENDED, "FAILED", ray=world.two)
    monkeypatch.setattr(time, "time", lambda: SUBMITTED + 725.0)
    return world


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_INTERVAL", 0.01)
    monkeypatch.setattr(sweeper, "WAITING", 0.05)
    monkeypatch.setattr(jobs, "WAITING", 0.05)


def run(world: World, command: Callable[[Any], None], **arguments: Any) -> None:
    known = {"file": str(world.file), "output": "table", "tenant": None, "all": False}
    command(Namespace(**{**known, **arguments}))


def refused(
    world: World, capsys: pytest.CaptureFixture[str], command: Callable[[Any], None], **arguments: Any
) -> str:
    """What stands on standard error of a command that ends with exit code 1."""
    with pytest.raises(SystemExit) as end:
        run(world, command, **arguments)
    assert end.value.code == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def short(own: TryIdentity) -> str:
    return own.submission_id.rpartition("-")[2][:8]


# -- list ------------------------------------------------------------------------------------------


def test_live_jobs_stand_by_tenant_with_their_tasks_and_orphans_are_marked(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run(full, jobs.list_jobs)
    assert capsys.readouterr().out.splitlines() == [
        "tenant acme: 2 live jobs, 4 slots",
        "  job       ray      age     airflow             task",
        f"  {short(WANTED)}  RUNNING  12m 5s  deferred            acme_daily_delays.statistics[3]",
        f"            try 1 of {RUN}",
        f"! {short(CLEARED)}  PENDING  12m 5s  cleared             etl.load",
        "            try 1 of manual__2",
        "",
        "tenant globex: 1 live job, 2 slots",
        "  job       ray      age     airflow             task",
        f"! {short(RETRIED)}  RUNNING  12m 5s  now try 2: running  delay_model.train",
        "            try 1 of manual__3",
        "",
        "! an orphan: no task waits for it, and the next sweep stops it",
    ]


def test_all_shows_ended_jobs_as_well_and_counts_only_the_live_ones(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run(full, jobs.list_jobs, all=True, tenant="globex")
    out = capsys.readouterr().out
    assert out.startswith("tenant globex: 1 live job, 2 slots\n")
    assert f"  {short(ENDED)}  FAILED   12m 4s  gone                delay_model.score\n" in out
    assert "acme" not in out


@pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_for_programs_there_is_the_whole_of_it(
    full: World, capsys: pytest.CaptureFixture[str], output: str, parse: Callable[[str], Any]
) -> None:
    run(full, jobs.list_jobs, output=output)
    rows = parse(capsys.readouterr().out)
    assert [row["submission_id"] for row in rows] == [own.submission_id for own in (WANTED, CLEARED, RETRIED)]
    assert [row["orphan"] for row in rows] == [False, True, True]
    assert rows[0] == {
        "tenant": "acme",
        "job": short(WANTED),
        "ray": "RUNNING",
        "age": "12m 5s",
        "airflow": "deferred",
        "orphan": False,
        "task": "acme_daily_delays.statistics[3]",
        "run_id": RUN,
        "try": 1,
        "slots": 2,
        "pool": "ray.acme",
        "cluster": "one",
        "submitted": "2023-11-14T22:13:20Z",
        "ended": None,
        "submission_id": WANTED.submission_id,
    }


def test_no_job_is_said_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.one.add_job("raysubmit_1", metadata=WANTED.metadata())
    world.job(identity(1, deployment="staging"))
    run(world, jobs.list_jobs)
    run(world, jobs.list_jobs, all=True)
    run(world, jobs.list_jobs, output="json")
    assert capsys.readouterr().out == "No live job.\nNo job.\n[]\n"


def test_a_tenant_that_is_not_in_the_file_is_refused(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(world, capsys, jobs.list_jobs, tenant="acne")
    assert error == "--tenant: found 'acne'; allowed: acme, globex\n"


def test_a_silent_cluster_does_not_hide_the_other(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    full.one.outage(status(502))
    with pytest.raises(SystemExit):
        run(full, jobs.list_jobs)
    out, err = capsys.readouterr()
    assert "delay_model.train" in out
    assert err.startswith(f"cluster one: Ray at {full.one.address} answered 502")


def test_a_silent_database_is_one_clear_error(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    full.database.away = True
    assert refused(full, capsys, jobs.list_jobs).startswith("Airflow's database: connection refused")


# -- show ------------------------------------------------------------------------------------------


def test_show_says_everything_about_one_job(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (WANTED.submission_id, short(WANTED), short(WANTED)[:4]):
        run(full, jobs.show, submission_id=name)
        assert capsys.readouterr().out.splitlines() == [
            f"submission id  {WANTED.submission_id}",
            "tenant         acme",
            "task           acme_daily_delays.statistics[3]",
            f"run            {RUN}",
            f"try            1, task instance {WANTED.ti_id}",
            "ray            RUNNING on cluster one, submitted 12m 5s ago",
            "submitted      2023-11-14T22:13:20Z",
            "airflow        deferred; its task waits for it",
            "pool           ray.acme, 2 slots",
            "footprint      3 CPU + 1.5GiB",
            "node           " + "head".ljust(56, "0"),
            f"dashboard      {full.one.address}/#/jobs/{WANTED.submission_id}",
            "message        Job is currently running.",
        ]


def test_show_of_a_job_that_ended_says_how(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    job = full.two.jobs[ENDED.submission_id]
    job.end("FAILED", exit_code=3, error_type="JOB_ENTRYPOINT_COMMAND_ERROR", message="one\ntwo \x1b[31mred")
    run(full, jobs.show, submission_id=short(ENDED))
    out = capsys.readouterr().out
    assert "ray            FAILED on cluster two, ended 12m 4s ago\n" in out
    assert "exit code      3\nerror type     JOB_ENTRYPOINT_COMMAND_ERROR\n" in out
    # Lines of the message stand below each other, and codes for the terminal do not get through.
    assert "message        one\n               two  [31mred\n" in out
    run(full, jobs.show, submission_id=short(ENDED), output="json")
    known = json.loads(capsys.readouterr().out)
    assert (known["exit_code"], known["standing"], known["airflow"]) == (3, "ended", "gone")


@pytest.mark.parametrize("footprint", ["", "{", "[]", '{"cpus": "x"}', "7", "[" * 100_000])
def test_a_footprint_that_is_none_is_shown_as_it_is(
    world: World, capsys: pytest.CaptureFixture[str], footprint: str
) -> None:
    world.job(WANTED, footprint=footprint)
    run(world, jobs.show, submission_id=short(WANTED))
    assert f"footprint      {footprint}\n" in capsys.readouterr().out


# -- stop ------------------------------------------------------------------------------------------


def test_stop_ends_ours_by_any_name_and_says_so(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    run(full, jobs.stop, submission_ids=[WANTED.submission_id, short(RETRIED), short(RETRIED)])
    assert full.one.jobs[WANTED.submission_id].status == "STOPPED"
    assert full.two.jobs[RETRIED.submission_id].status == "STOPPED"
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"Job {WANTED.submission_id} has ended; its task acme_daily_delays.statistics[3] was deferred.",
        f"Job {RETRIED.submission_id} has ended; its task delay_model.train was now try 2: running.",
    ]


def test_stop_of_a_job_that_has_ended_says_so(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    run(full, jobs.stop, submission_ids=[short(ENDED)])
    assert capsys.readouterr().out == f"Job {ENDED.submission_id} has ended already: FAILED.\n"
    assert full.two.calls("POST") == []


def test_stop_refuses_what_is_not_ours_and_then_stops_nothing(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = full.job(identity(1, deployment="staging"))
    full.one.add_job("raysubmit_1", metadata=WANTED.metadata()).run()
    for name in (theirs.request["submission_id"], "raysubmit_1"):
        error = refused(full, capsys, jobs.stop, submission_ids=[WANTED.submission_id, name])
        assert f"job {name} of cluster one is not of deployment prod" in error
    error = refused(full, capsys, jobs.stop, submission_ids=[short(WANTED), "nonsense"])
    assert "found no job 'nonsense'; allowed: a submission id, or 4 and more characters" in error
    assert full.one.calls("POST") == full.two.calls("POST") == []


def test_stop_of_a_job_that_may_be_on_a_silent_cluster_says_so(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    full.two.outage(status(502))
    error = refused(full, capsys, jobs.stop, submission_ids=[short(RETRIED)])
    assert "found no job" in error
    assert "; cluster two: Ray at " in error


def test_stop_of_a_job_that_waits_in_ray_says_that_it_can_start_nothing(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run(full, jobs.stop, submission_ids=[short(CLEARED)])
    assert capsys.readouterr().out == (
        f"Job {CLEARED.submission_id} can start nothing any more; Ray forgets it in a while; "
        "its task etl.load was cleared.\n"
    )


def test_stop_gives_up_on_a_job_that_does_not_end(
    full: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "STOP_PATIENCE", 0.3)
    full.one.jobs[WANTED.submission_id].stops = False
    error = refused(full, capsys, jobs.stop, submission_ids=[short(WANTED)])
    assert error == f"job {WANTED.submission_id} was told to stop, but still lives after 0.3 s\n"


def test_a_beginning_of_several_ids_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    by_beginning: dict[str, TryIdentity] = {}
    number = 0
    while short(own := identity(number := number + 1))[:4] not in by_beginning:
        by_beginning[short(own)[:4]] = own
    pair = [own, by_beginning[short(own)[:4]]]
    for one in pair:
        world.job(one)
    error = refused(world, capsys, jobs.stop, submission_ids=[short(own)[:4]])
    assert error == (
        f"found 2 jobs that begin with {short(own)[:4]!r}: "
        f"{', '.join(sorted(one.submission_id for one in pair))}\n"
    )
    assert world.one.calls("POST") == []


# -- sweep -----------------------------------------------------------------------------------------


def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run(full, jobs.sweep, older_than="10m", dry_run=True)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "job action why task",
        f"{short(CLEARED)} would stop task cleared etl.load",
        f"{short(RETRIED)} would stop task now try 2: running delay_model.train",
        f"{short(ENDED)} would delete FAILED 12m 4s ago delay_model.score",
        "(dry run: nothing was done)",
    ]
    assert full.one.calls("POST") == full.two.calls("POST") == full.two.calls("DELETE") == []


def test_a_sweep_stops_orphans_deletes_old_records_and_nothing_else(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    full.one.jobs[CLEARED.submission_id].run()
    theirs = full.job(identity(1, deployment="staging"))
    run(full, jobs.sweep, older_than="10m", dry_run=False, output="json")
    rows = json.loads(capsys.readouterr().out)
    assert [(row["submission_id"], row["action"], row["cluster"]) for row in rows] == [
        (CLEARED.submission_id, "stopped", "one"),
        (RETRIED.submission_id, "stopped", "two"),
        (ENDED.submission_id, "deleted", "two"),
    ]
    assert full.one.jobs[WANTED.submission_id].status == theirs.status == "RUNNING"
    assert list(full.two.jobs) == [RETRIED.submission_id]
    run(full, jobs.sweep, older_than="20m", dry_run=False)
    assert capsys.readouterr().out == "No orphan, and no record older than 20m.\n"


def test_a_sweep_whose_orphan_does_not_end_exits_1(
    full: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_raytenant.control.sweeper.STOP_PATIENCE", 0.3)
    full.two.jobs[RETRIED.submission_id].stops = False
    with pytest.raises(SystemExit) as end:
        run(full, jobs.sweep, older_than="7d", dry_run=False)
    assert end.value.code == 1
    assert "still lives" in capsys.readouterr().out


def test_a_job_that_a_retry_may_adopt_is_looked_at_twice(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "SECOND_LOOK", 0.01)
    world.job(WANTED, adoptable="true")
    world.database.state(WANTED, None, ti_id="another")
    run(world, jobs.sweep, older_than="36500d", dry_run=False, output="json")
    assert [row["action"] for row in json.loads(capsys.readouterr().out)] == ["stopped"]
    assert len(world.one.calls("GET", "/api/jobs/")) == 2


@pytest.mark.parametrize("text", ["7", "x", "1.5h", ""])
def test_a_wrong_duration_is_one_clear_error(
    world: World, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    error = refused(world, capsys, jobs.sweep, older_than=text, dry_run=True)
    assert error == f"--older-than: found {text!r}; allowed: a whole number with a unit: 90s, 30m, 12h, 7d\n"


def test_a_cluster_without_a_connection_is_said_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    del world.database.endpoints["ray_two"]
    error = refused(world, capsys, jobs.sweep, older_than="7d", dry_run=False)
    assert error == "cluster two: connection ray_two: found none; allowed: one of type ray\n"


def test_a_cluster_that_wants_a_token_is_said_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.two.token = "wanted"
    world.database.endpoints["ray_two"] = RayEndpoint(world.two.address, token="another")
    assert "refuses the connection's token (403)" in refused(world, capsys, jobs.list_jobs)
