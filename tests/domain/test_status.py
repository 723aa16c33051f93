from __future__ import annotations

import pytest

from airflow_provider_raytenant.domain.status import LIVE, TERMINAL, JobStatus


@pytest.mark.parametrize(
    ("status", "terminal"),
    [("PENDING", False), ("RUNNING", False), ("STOPPED", True), ("SUCCEEDED", True), ("FAILED", True)],
)
def test_a_status_is_read_from_rays_word_and_knows_whether_it_is_the_last(
    status: str, terminal: bool
) -> None:
    assert JobStatus(status).is_terminal is terminal


def test_every_status_is_either_live_or_terminal() -> None:
    assert set(JobStatus) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
