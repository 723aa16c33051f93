from __future__ import annotations

from airflow_provider_raytenant.control.notices import Notices
from airflow_provider_raytenant.exceptions import RayAuthError, RayUnavailableError


def test_a_trouble_is_told_when_it_begins_when_it_changes_and_when_it_ends() -> None:
    said: list[str] = []
    notices = Notices(said.append)
    notices.good("cluster one")
    notices.bad("cluster one", RayUnavailableError("no answer within 10 s"))
    notices.bad("cluster one", RayUnavailableError("connection refused"))
    notices.bad("cluster two", RayUnavailableError("gone"))
    notices.bad("cluster one", RayAuthError("wants a token"))
    assert notices.is_bad("cluster one")
    notices.good("cluster one")
    notices.good("cluster one")
    assert not notices.is_bad("cluster one")
    assert said == [
        "cluster one: no answer within 10 s; trying on",
        "cluster two: gone; trying on",
        "cluster one: wants a token; trying on",
        "cluster one: well again after 0s",
    ]


def test_what_stands_is_told_when_it_comes_and_when_it_goes() -> None:
    said: list[str] = []
    notices = Notices(said.append)
    for texts in ([], ["b", "a"], ["a", "b"], ["b"], []):
        notices.standing("pools", texts)
    assert said == ["pools: a", "pools: b", "pools: no longer: a", "pools: no longer: b"]
