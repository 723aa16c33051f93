from __future__ import annotations

import pytest

from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.checks.ray_version import judge_version


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        ("2.60.0", Level.OK, "tried"),
        ("2.60.3", Level.OK, "tried"),
        ("2.61.0rc1", Level.WARNING, "newer"),
        ("3.0.0.dev0", Level.WARNING, "newer"),
        ("2.54.1", Level.WARNING, "older"),
        ("2.53.0", Level.WARNING, "ray#59735"),
        ("2.53.0", Level.WARNING, "CVE-2026-27482"),
        ("2.51.9", Level.FAILURE, "no token authentication"),
        ("2.9.3", Level.FAILURE, "ray#55133"),
        ("nightly", Level.WARNING, "'nightly' is no version"),
    ],
)
def test_each_version_is_tried_untried_or_known_for_its_trouble(
    version: str, level: Level, words: str
) -> None:
    found = judge_version(version)
    assert (found.level, words in found.found) == (level, True)


def test_trouble_that_was_mended_is_not_told() -> None:
    assert "55133" not in judge_version("2.50.0").found
    assert "59299" not in judge_version("2.52.0").found
    assert "59735" not in judge_version("2.54.0").found
