from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.checks.finding import Finding, Level
from airflow_provider_raytenant.checks.node_report import judge_report, judge_s3, start_timeout_of
from airflow_provider_raytenant.checks.probe import NodeReport, Report


def node(**more: Any) -> NodeReport:
    known: dict[str, Any] = {"python": "3.11.9", "missing": (), "start_timeout": None, "s3": {"acme": ""}}
    return NodeReport(**{**known, **more})


def report(*nodes: NodeReport, **more: Any) -> Report:
    count = len(nodes)
    by_name = {f"n{number}": one for number, one in enumerate(nodes)}
    return Report(**{"driver_python": "3.11.9", "alive": count, "asked": count, "nodes": by_name, **more})


def judged(given: Report) -> dict[str, Finding]:
    return {finding.check: finding for finding in judge_report(given)}


def test_a_sound_report_is_ok_all_through() -> None:
    found = judged(report(node(), node(), alive=7))
    assert {name: f.level for name, f in found.items()} == dict.fromkeys(
        ("jobs", "Python", "packages"), Level.OK
    )
    assert "2 of 7 nodes" in found["jobs"].found


def test_a_job_that_ended_badly_is_a_failure_and_all_there_is() -> None:
    found = judged(Report(trouble="the doctor's job ended FAILED without a report: python: not found"))
    assert {name: f.level for name, f in found.items()} == {"jobs": Level.FAILURE}


def test_a_job_that_waited_is_a_warning() -> None:
    found = judged(Report(trouble="the doctor's job still waits in Ray after 60 s", waited=True))
    assert (found["jobs"].level, "is full" in found["jobs"].found) == (Level.WARNING, True)


def test_nodes_that_do_not_answer_are_a_warning() -> None:
    found = judged(report(node(), asked=3, alive=3))
    assert (found["jobs"].level, "2 of 3 nodes" in found["jobs"].found) == (Level.WARNING, True)


@pytest.mark.parametrize(
    ("given", "level", "words"),
    [
        (report(node(), node(python="3.11.2")), Level.OK, "3.11.9"),
        (report(node(), node(python="3.12.1")), Level.FAILURE, "3.11.9 (1), 3.12.1 (1)"),
        (report(node(), driver_python="3.13.0"), Level.FAILURE, "`python` is 3.13.0"),
        (report(node(python="3.9.1"), driver_python="3.9.1"), Level.FAILURE, "3.9.1 is too old"),
    ],
)
def test_one_python_that_is_new_enough(given: Report, level: Level, words: str) -> None:
    found = judged(given)["Python"]
    assert (found.level, words in found.found) == (level, True)


def test_a_missing_package_is_a_warning_that_counts_nodes() -> None:
    found = judged(report(node(), node(missing=("pip",))))["packages"]
    assert (found.level, found.found) == (Level.WARNING, "missing: pip on 1 of 2 nodes")


@pytest.mark.parametrize(
    ("answers", "level", "words"),
    [
        (["", ""], Level.OK, "on 2 of 2 nodes"),
        (["", "no boto3"], Level.OK, "on 1 of 2 nodes"),
        (["no boto3"], Level.WARNING, "the nodes have no boto3"),
        ([], Level.WARNING, "no node told of it"),
        (["", "ClientError: AccessDenied"], Level.FAILURE, "on 1 of 2 nodes: ClientError: AccessDenied"),
    ],
)
def test_a_prefix_that_cannot_be_listed_is_a_failure_and_one_not_tried_a_warning(
    answers: list[str], level: Level, words: str
) -> None:
    found = judge_s3("acme", "s3://lake/acme", report(*(node(s3={"acme": text}) for text in answers)))
    assert (found.level, words in found.found) == (level, True)


def test_the_start_time_out_is_that_of_a_node_that_has_it() -> None:
    assert start_timeout_of(report(node(), node(start_timeout="60"))) == 60.0
    assert start_timeout_of(report(node(start_timeout="soon"))) is None
