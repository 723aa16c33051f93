from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.checks.airflow_side import (
    AirflowSettings,
    judge_controllers,
    judge_scheduler,
    judge_teams,
    judge_triggerers,
)
from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.domain.heartbeat import Heartbeat


def settings(**more: Any) -> AirflowSettings:
    known = {"max_tis_per_query": 64, "parallelism": 32, "triggerer_capacity": 1000}
    return AirflowSettings(**{**known, "triggerer_threshold": 30.0, "multi_team": False, **more})


@pytest.mark.parametrize(
    ("looks_at", "tenants", "level"),
    [(64, 9, Level.OK), (16, 9, Level.WARNING), (17, 9, Level.OK), (16, 1, Level.OK), (0, 9, Level.OK)],
)
def test_sixteen_tasks_a_pass_are_few_for_several_tenants(looks_at: int, tenants: int, level: Level) -> None:
    assert judge_scheduler(settings(max_tis_per_query=looks_at), tenants).level is level


def test_no_limit_of_its_own_is_that_of_parallelism() -> None:
    assert judge_scheduler(settings(max_tis_per_query=0, parallelism=8), 2).level is Level.WARNING


@pytest.mark.parametrize(
    ("beats", "level", "words"),
    [
        ([], Level.FAILURE, "none has run within a week"),
        ([Heartbeat("a", True, 31)], Level.FAILURE, "heard of 31s ago on a"),
        ([Heartbeat("a", False, 1)], Level.FAILURE, "none is alive"),
        ([Heartbeat("a", True, 29), Heartbeat("b", True, 90)], Level.OK, "1 alive, with room for 1000"),
    ],
)
def test_a_triggerer_has_to_be_alive(beats: list[Heartbeat], level: Level, words: str) -> None:
    found = judge_triggerers(beats, settings(), 10)
    assert (found.level, words in found.found) == (level, True)


@pytest.mark.parametrize(
    ("alive", "slots", "level"),
    [(1, 1000, Level.OK), (1, 1001, Level.WARNING), (2, 2000, Level.OK), (1, None, Level.OK)],
)
def test_triggerers_have_to_hold_as_many_tasks_as_the_pools(
    alive: int, slots: int | None, level: Level
) -> None:
    assert judge_triggerers([Heartbeat("a", True, 1)] * alive, settings(), slots).level is level


@pytest.mark.parametrize(
    ("beats", "rounds", "level", "words"),
    [
        ([], [], Level.WARNING, "none has run within a week"),
        ([Heartbeat("a", True, 6)], [], Level.OK, "alive on a"),
        ([Heartbeat("a", True, 600)], [], Level.FAILURE, "fell silent 10m ago on a"),
        ([Heartbeat("a", False, 600)], [], Level.WARNING, "ended 10m ago on a"),
        ([Heartbeat("a", True, 600), Heartbeat("b", True, 6)], [], Level.OK, "alive on b"),
        ([], [Heartbeat("c", False, 240)], Level.OK, "a single round 4m ago on c"),
        ([Heartbeat("a", True, 3600)], [Heartbeat("c", False, 901)], Level.FAILURE, "fell silent"),
    ],
)
def test_a_controller_is_alive_ended_or_missed(
    beats: list[Heartbeat], rounds: list[Heartbeat], level: Level, words: str
) -> None:
    found = judge_controllers(beats, rounds)
    assert (found.level, words in found.found) == (level, True)


def test_teams_are_untried() -> None:
    assert judge_teams(settings()).level is Level.OK
    assert judge_teams(settings(multi_team=True)).level is Level.WARNING
