"""The doctor looks at backfills' pools where a tenant of its scope has one, and only there."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from airflow_provider_raytenant.checks import diagnosis
from airflow_provider_raytenant.checks.diagnosis import Scope, diagnose
from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.database.backfills import BackfillTasks
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError
from tests.fakes.doctor import Patient


@pytest.fixture
def asked(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Which pools the database was asked about; a task of acme's backfill waits in the main pool."""
    seen: list[set[str]] = []

    def read(pools: Collection[str]) -> list[BackfillTasks]:
        patient.world.database.ask()
        seen.append(set(pools))
        return [BackfillTasks("ray.acme", 1, 1, "etl")]

    monkeypatch.setattr(diagnosis, "read_backfill_tasks", read)
    text = patient.world.file.read_text()
    patient.world.file.write_text(text.replace("acme: {}", "acme: {backfill: {limit: 4}}"))
    return seen


async def levels(patient: Patient, scope: Scope) -> list[tuple[str | None, Level]]:
    found = await diagnose(str(patient.world.file), scope)
    return [(line.tenant, line.level) for line in found if line.check == "backfill"]


@pytest.mark.parametrize(
    "scope", [Scope(jobs=False), Scope("one", jobs=False), Scope(tenant="acme", jobs=False)]
)
async def test_a_tenant_with_a_pool_for_backfills(
    patient: Patient, asked: list[set[str]], scope: Scope
) -> None:
    # This process has no policy, and a task tells that others have none either.
    assert await levels(patient, scope) == [(None, Level.WARNING), ("acme", Level.WARNING)]
    assert asked == [{"ray.acme", "ray.acme.backfill"}]


@pytest.mark.parametrize("scope", [Scope("two", jobs=False), Scope(tenant="globex", jobs=False)])
async def test_other_tenants_have_no_line_of_it(
    patient: Patient, asked: list[set[str]], scope: Scope
) -> None:
    assert await levels(patient, scope) == []
    assert asked == []


async def test_without_the_database_this_process_is_judged_still(
    patient: Patient, asked: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(pools: Collection[str]) -> list[BackfillTasks]:
        raise DatabaseUnavailableError("away")

    monkeypatch.setattr(diagnosis, "read_backfill_tasks", away)
    assert await levels(patient, Scope(jobs=False)) == [(None, Level.WARNING)]
