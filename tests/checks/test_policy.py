"""What the doctor says of backfills' pools, and how it finds out what this process does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow import settings
from airflow.models import taskinstance

from airflow_provider_raytenant import policy
from airflow_provider_raytenant.checks.finding import Finding, Level
from airflow_provider_raytenant.checks.policy import (
    LINE,
    BackfillRoute,
    PolicyLook,
    backfill_routes,
    judge_policy,
    look_at_policy,
)
from airflow_provider_raytenant.database.backfills import BackfillTasks
from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.tenant_file import load

TENANTS = """\
deployment: test
defaults: {cluster: shared}
clusters:
  shared:
    ray_conn_id: ray
    groups:
      cpu: {slot: {cpus: 1, memory: 1GiB}}
      gpu: {slot: {gpus: 1, cpus: 4, memory: 16GiB}}
tenants:
  acme: {backfill: {limit: {cpu: 6}}, large_from: 8}
  globex: {}
  frozen: {backfill: {limit: {cpu: 0, gpu: 1}}}
"""
ACME = BackfillRoute("acme", "shared", ("ray.acme", "ray.acme.large"), "ray.acme.backfill", 6)
WORKS = PolicyLook("/home/config", "/home/config/airflow_local_settings.py", True, {"ray.acme": ACME.target})
SILENT = replace(WORKS, called=False, settings_file=None, pools={})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TenantFile:
    path = tmp_path / "raytenant.yaml"
    path.write_text(TENANTS)
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", str(path))
    return load(str(path))


def lines(look: PolicyLook, *tasks: BackfillTasks, **more: Any) -> list[Finding]:
    return list(judge_policy([ACME], look, tasks, **more))


def test_routes_are_those_of_tenants_with_backfill(file: TenantFile) -> None:
    assert backfill_routes(file) == [
        ACME,
        BackfillRoute("acme", "shared", ("ray.acme.gpu",), "ray.acme.gpu.backfill", None),
        BackfillRoute("frozen", "shared", ("ray.frozen",), "ray.frozen.backfill", 0),
        BackfillRoute("frozen", "shared", ("ray.frozen.gpu",), "ray.frozen.gpu.backfill", 1),
    ]


def test_nobody_with_a_backfill_pool_is_no_line() -> None:
    assert list(judge_policy([], SILENT, [])) == []


def test_a_policy_that_works_is_one_line() -> None:
    (line,) = lines(WORKS, BackfillTasks("ray.acme.backfill", 1, 3, "etl"))
    assert line.level is Level.OK
    assert "acme" in line.found


def test_the_silent_no_op_is_named_with_what_to_put_where() -> None:
    (line,) = lines(SILENT)
    assert line.level is Level.WARNING
    assert "calls no policy in this process (there is no airflow_local_settings.py)" in line.found
    assert f"`{LINE}` into /home/config/airflow_local_settings.py of the scheduler, the API" in line.advice


def test_a_settings_file_without_the_hook_is_the_same_no_op() -> None:
    (line,) = lines(replace(SILENT, settings_file="/srv/airflow_local_settings.py"))
    assert "(/srv/airflow_local_settings.py has no task_instance_mutation_hook)" in line.found
    assert "into /srv/airflow_local_settings.py" in line.advice


def test_a_hook_that_does_not_call_ours() -> None:
    (line,) = lines(replace(WORKS, pools={"ray.acme": "ray.acme"}))
    assert line.level is Level.WARNING
    assert "leaves a backfill's task in ray.acme of acme" in line.found
    assert "Call `airflow_provider_raytenant.policy.task_instance_mutation_hook(" in line.advice
    (line,) = lines(replace(WORKS, pools={"ray.acme": "ray.acme"}), same_file=False)
    assert "[raytenant] config_file" in line.advice


def test_a_hook_that_fails() -> None:
    (line,) = lines(replace(WORKS, pools={}, error="KeyError: 'team'"))
    assert line.level is Level.WARNING
    assert "fails on a backfill's task of this provider: KeyError: 'team'" in line.found


def test_tasks_in_the_wrong_pool_are_evidence_against_other_processes() -> None:
    stray = BackfillTasks("ray.acme", 2, 12, "etl"), BackfillTasks("ray.acme.large", 6, 1, "etl")
    here, main, large = lines(WORKS, *stray)
    assert here.level is Level.OK
    assert (main.level, main.cluster, main.tenant) == (Level.WARNING, "shared", "acme")
    assert main.found == "12 tasks of backfills (etl) in ray.acme, although ray.acme.backfill could hold them"
    assert large.found.startswith("1 task of backfills (etl) in ray.acme.large")
    assert LINE in main.advice


def test_what_the_backfill_pool_cannot_hold_is_no_evidence() -> None:
    assert len(lines(WORKS, BackfillTasks("ray.acme", 7, 12, "etl"))) == 1


def test_tasks_in_the_right_pool_are_evidence_for_other_processes() -> None:
    (line,) = lines(SILENT, BackfillTasks("ray.acme.backfill", 1, 2, "etl"))
    assert line.level is Level.OK
    assert "2 tasks of backfills (etl)" in line.found


# -- what this process does ------------------------------------------------------------------------

Hook = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Hook], None]:
    """Let a hook be this process's, as an ``airflow_local_settings.py`` would."""

    def put(hook: Hook) -> None:
        (tmp_path / "airflow_local_settings.py").touch()
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(settings, "task_instance_mutation_hook", hook)
        monkeypatch.setattr(taskinstance, "task_instance_mutation_hook", hook)

    return put


def test_the_tests_themselves_have_no_policy(file: TenantFile) -> None:
    look = look_at_policy(backfill_routes(file))
    assert (look.called, look.settings_file, look.pools) == (False, None, {})
    assert look.folder.endswith("/config")


def test_ours_is_seen_to_work_without_a_database(
    file: TenantFile, install: Callable[[Hook], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def must_not() -> None:
        raise AssertionError

    monkeypatch.setattr(settings, "Session", must_not)
    install(policy.task_instance_mutation_hook)
    routes = backfill_routes(file)
    look = look_at_policy(routes)
    assert look.called
    assert look.settings_file is not None
    assert look.settings_file.endswith("airflow_local_settings.py")
    assert look.pools == {
        "ray.acme": "ray.acme.backfill",
        "ray.acme.gpu": "ray.acme.gpu.backfill",
        "ray.frozen.gpu": "ray.frozen.gpu.backfill",
    }
    assert [line.level for line in judge_policy(routes, look, [])] == [Level.OK]


def test_one_that_does_something_else(file: TenantFile, install: Callable[[Hook], None]) -> None:
    def other(task_instance: Any, dag_run: Any = None) -> None:
        task_instance.queue = "other"

    install(other)
    routes = backfill_routes(file)
    look = look_at_policy(routes)
    assert set(look.pools) == set(look.pools.values())
    (line,) = judge_policy(routes, look, [])
    assert "leaves a backfill's task in ray.acme of acme, ray.acme.gpu of acme" in line.found


def test_one_that_raises(file: TenantFile, install: Callable[[Hook], None]) -> None:
    def broken(task_instance: Any, dag_run: Any = None) -> None:
        raise LookupError("no such team")

    install(broken)
    look = look_at_policy(backfill_routes(file))
    assert (look.called, look.error, look.pools) == (True, "LookupError: no such team", {})


def test_airflow_itself_makes_it_a_no_op_without_the_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    hook: Any = settings.task_instance_mutation_hook
    monkeypatch.setattr(hook, "is_noop", True)
    monkeypatch.delitem(sys.modules, "airflow_local_settings", raising=False)
    settings.import_local_settings()
    assert hook.is_noop
    module = ModuleType("airflow_local_settings")
    module.__file__ = "airflow_local_settings.py"
    monkeypatch.setitem(sys.modules, "airflow_local_settings", module)
    settings.import_local_settings()
    assert hook.is_noop
