from __future__ import annotations

import pytest

from airflow_provider_raytenant.checks.access import judge_authentication, judge_transport, on_loopback
from airflow_provider_raytenant.checks.finding import Level
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("http://127.0.0.1:8265", True),
        ("http://127.9.9.9:8265", True),
        ("http://[::1]:8265", True),
        ("http://localhost:8265/ray", True),
        ("http://10.0.0.1:8265", False),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("http://ray-head:8265", False),
    ],
)
def test_loopback_is_told_by_the_host(address: str, here: bool) -> None:
    assert on_loopback(address) is here


@pytest.mark.parametrize(
    ("endpoint", "level"),
    [
        (RayEndpoint("https://ray.example.org"), Level.OK),
        (RayEndpoint("https://ray.example.org", verify=False), Level.WARNING),
        (RayEndpoint("http://ray.example.org:8265"), Level.WARNING),
        (RayEndpoint("http://127.0.0.1:8265", verify=False), Level.OK),
    ],
)
def test_what_leaves_the_machine_has_to_be_encrypted_and_checked(endpoint: RayEndpoint, level: Level) -> None:
    found = judge_transport(endpoint)
    assert found.level is level
    assert endpoint.address in found.found


@pytest.mark.parametrize(
    ("address", "refused", "level"),
    [
        ("http://ray.example.org:8265", True, Level.OK),
        ("http://ray.example.org:8265", False, Level.FAILURE),
        ("http://127.0.0.1:8265", False, Level.WARNING),
    ],
)
def test_an_open_dashboard_is_a_failure_but_on_ones_own_machine(
    address: str, refused: bool, level: Level
) -> None:
    assert judge_authentication(RayEndpoint(address), refused).level is level


def test_a_token_that_nobody_asks_for_is_said_and_never_shown() -> None:
    found = judge_authentication(RayEndpoint("http://ray:8265", token="a-secret"), refused=False)
    assert "though the connection has a token" in found.found
    assert "a-secret" not in found.found + found.advice
