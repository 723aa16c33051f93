"""``airflow raytenant doctor`` on two fake clusters: what it prints, its exit codes, who holds up whom."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from airflow_provider_raytenant.checks import cluster
from airflow_provider_raytenant.cli.doctor import doctor
from airflow_provider_raytenant.cli.output import nothing_else_on_stdout
from airflow_provider_raytenant.database import heartbeats
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes.doctor import SETTINGS, Patient
from tests.fakes.faults import hang


def run(patient: Patient, **arguments: Any) -> int:
    """The exit code."""
    known = {"file": str(patient.world.file), "output": "table", "cluster": None, "tenant": None}
    try:
        doctor(Namespace(**{**known, "no_jobs": False, "strict": False, **arguments}))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def titles(out: str) -> list[str]:
    return [line for line in out.splitlines() if line and not line.startswith(" ")]


def test_all_is_well_in_eighty_columns(patient: Patient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(patient, strict=True) == 0
    out = capsys.readouterr().out
    assert titles(out) == [
        "Airflow",
        "cluster one",
        "tenant acme",
        "cluster two",
        "tenant globex",
        "no failure, no warning, 33 ok.",
    ]
    assert max(map(len, out.splitlines())) <= 80
    assert "  ok       authentication  a request without the connection's secrets is refused\n" in out
    assert "->" not in out


def test_a_failure_says_what_to_do_and_ends_with_1(
    patient: Patient, capsys: pytest.CaptureFixture[str]
) -> None:
    del patient.world.database.pools["ray.acme"]
    assert run(patient) == 1
    lines = capsys.readouterr().out.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("  failure  pool"))
    assert "ray.acme is missing" in lines[place]
    assert any("-> Run `airflow raytenant pools sync`" in line for line in lines[place + 1 : place + 3])
    assert lines[-1] == "1 failure, no warning, 32 ok."


def test_a_warning_ends_with_1_only_where_it_is_strict(
    patient: Patient, capsys: pytest.CaptureFixture[str]
) -> None:
    patient.settings(replace(SETTINGS, max_tis_per_query=16))
    patient.beats[heartbeats.CONTROLLER] = []
    assert (run(patient), run(patient, strict=True)) == (0, 1)
    assert "no failure, 2 warnings, 31 ok." in capsys.readouterr().out


@pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_same_content(
    patient: Patient, capsys: pytest.CaptureFixture[str], output: str, parse: Callable[[str], Any]
) -> None:
    patient.world.one.version["ray_version"] = "2.58.0"
    assert run(patient, output=output) == 0
    known = parse(capsys.readouterr().out)
    assert (known["failures"], known["warnings"], known["ok"]) == (0, 1, 32)
    assert len(known["findings"]) == 33
    assert [finding for finding in known["findings"] if finding["level"] == "warning"] == [
        {
            "check": "Ray version",
            "level": "warning",
            "found": "2.58.0 is older than 2.60, with which this provider was tried",
            "advice": "Run Ray 2.60, or try it with your own DAGs before you rely on it.",
            "cluster": "one",
            "tenant": None,
        }
    ]


def test_one_cluster_or_one_tenant(patient: Patient, capsys: pytest.CaptureFixture[str]) -> None:
    run(patient, cluster="two")
    assert titles(capsys.readouterr().out)[:-1] == ["Airflow", "cluster two", "tenant globex"]
    run(patient, tenant="acme")
    assert titles(capsys.readouterr().out)[:-1] == ["Airflow", "cluster one", "tenant acme"]
    assert run(patient, tenant="acne") == 1
    assert capsys.readouterr().err == "--tenant: found 'acne'; allowed: acme, globex\n"
    assert run(patient, tenant="acme", cluster="two") == 1
    assert capsys.readouterr().err == "--cluster: found 'two'; allowed: the tenant's, one\n"


def test_a_hung_dashboard_holds_up_no_other_cluster(
    patient: Patient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "TIMEOUT", 0.5)
    patient.world.one.outage(hang)
    begun = time.monotonic()
    assert run(patient, output="json") == 1
    took = time.monotonic() - begun
    known = json.loads(capsys.readouterr().out)
    wrong = [finding for finding in known["findings"] if finding["level"] != "ok"]
    assert [(finding["cluster"], finding["check"]) for finding in wrong] == [("one", "dashboard")]
    assert "did not answer within 0.5 s" in wrong[0]["found"]
    assert any(f["check"] == "jobs" and f["cluster"] == "two" for f in known["findings"])
    assert took < 30


def test_a_wrong_tenant_file_is_a_failure_and_airflow_is_looked_at_all_the_same(
    patient: Patient, capsys: pytest.CaptureFixture[str]
) -> None:
    patient.world.file.write_text(patient.world.file.read_text().replace("acme: {}", "acme: {weight: -1}"))
    assert run(patient, output="json") == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert (findings[0]["check"], findings[0]["level"]) == ("tenant file", "failure")
    assert "tenants.acme.weight: found -1" in findings[0]["found"]
    assert findings[0]["advice"].startswith("Allowed: a number above 0")
    assert {"triggerer", "controller", "scheduler"} <= {finding["check"] for finding in findings}


def test_a_database_that_is_away_is_a_failure_and_the_clusters_are_looked_at_all_the_same(
    patient: Patient, capsys: pytest.CaptureFixture[str]
) -> None:
    patient.world.database.away = True
    assert run(patient, output="json") == 1
    known = json.loads(capsys.readouterr().out)
    failed = {finding["check"] for finding in known["findings"] if finding["level"] == "failure"}
    assert failed == {"database", "pools"}
    assert sum(finding["check"] == "nodes" for finding in known["findings"]) == 2


def test_what_a_terminal_obeys_is_not_printed(patient: Patient, capsys: pytest.CaptureFixture[str]) -> None:
    patient.world.one.version["ray_version"] = "2.60\x1b[2J"
    patient.world.database.endpoints["ray_two"] = RayEndpoint("http://127.0.0.1:9")
    run(patient)
    assert "\x1b" not in capsys.readouterr().out


def test_what_libraries_write_meanwhile_is_not_in_the_output(capfd: pytest.CaptureFixture[str]) -> None:
    with nothing_else_on_stdout():
        os.write(1, b"a log line\n")
    print("the output")
    out, err = capfd.readouterr()
    assert (out, err) == ("the output\n", "a log line\n")
