"""``airflow raytenant pause`` and ``resume`` on fake clusters."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_raytenant.cli import pauses
from airflow_provider_raytenant.domain.pool_rows import ExistingPool
from airflow_provider_raytenant.pools.capacity import read_clusters
from airflow_provider_raytenant.pools.sync import DagFacts, sync_pools
from airflow_provider_raytenant.tenant_file import load
from tests.fakes.world import World


@pytest.fixture
def full(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two clusters whose pools are as they should be; acme holds three slots."""
    monkeypatch.setattr(pauses, "write_pools", world.database.write_pools)
    monkeypatch.setattr(pauses, "read_dags", world.database.read_dags)
    file = load(str(world.file))
    sync_pools(file, read_clusters(file).states, DagFacts())
    pools = world.database.pools
    pools["ray.acme"] = ExistingPool("ray.acme", 4, pools["ray.acme"].description, occupied=3)
    return world


def run(
    world: World, command: Callable[[Any], None], name: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = 0
    try:
        command(Namespace(file=str(world.file), name=name))
    except SystemExit as end:
        code = int(end.code or 0)
    out, error = capsys.readouterr()
    assert all(len(line) <= 80 for line in out.splitlines())
    return code, out, error


def slots(world: World) -> dict[str, int]:
    return {name: pool.slots for name, pool in world.database.pools.items()}


def test_a_pause_says_what_still_runs_and_what_ends_it(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    before = slots(full)
    assert run(full, pauses.pause, "acme", capsys) == (
        0,
        "Tenant acme is paused: 1 pool closed.\n"
        "Tasks hold 3 slots and go on to their end (`airflow raytenant jobs list`).\n"
        "`airflow raytenant resume acme` ends the pause.\n",
        "",
    )
    assert slots(full) == {**before, "ray.acme": 0}


def test_a_pause_needs_no_cluster(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    full.database.endpoints.clear()
    code, out, _ = run(full, pauses.pause, "two", capsys)
    assert (code, slots(full)["ray.globex"]) == (0, 0)
    assert out.splitlines()[:2] == ["Cluster two is paused: 1 pool closed.", "No task holds a slot."]


def test_resumed_pools_get_their_slots_at_once(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = slots(full)
    run(full, pauses.pause, "two", capsys)
    code, out, error = run(full, pauses.resume, "two", capsys)
    assert (code, error) == (0, "")
    assert out == f"Cluster two is resumed: 1 pool open.\nray.globex: {before['ray.globex']} slots\n"
    assert slots(full)["ray.globex"] == before["ray.globex"]


def test_what_is_paused_for_another_reason_too_stays_closed(
    full: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run(full, pauses.pause, "two", capsys)
    run(full, pauses.pause, "globex", capsys)
    code, out, _ = run(full, pauses.resume, "globex", capsys)
    assert (code, slots(full)["ray.globex"]) == (0, 0)
    assert out.splitlines()[-1] == "ray.globex: paused with cluster two"


def test_pools_of_a_silent_cluster_wait_for_it(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    run(full, pauses.pause, "two", capsys)
    full.database.endpoints.pop("ray_two")
    code, out, error = run(full, pauses.resume, "two", capsys)
    assert (code, out) == (1, "Cluster two is resumed: 1 pool open.\n")
    assert error.endswith("; its pools get their slots once it answers\n")
    assert slots(full)["ray.globex"] == 0


def test_what_was_not_paused_is_said_so(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(full, pauses.resume, "acme", capsys) == (0, "Tenant acme was not paused.\n", "")


def test_a_name_that_nobody_has_changes_nothing(full: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = slots(full)
    code, out, error = run(full, pauses.pause, "acne", capsys)
    assert (code, out) == (1, "")
    assert error == "CLUSTER|TENANT: found 'acne'; allowed: clusters one, two; tenants acme, globex\n"
    assert slots(full) == before
