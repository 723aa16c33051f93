from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_raytenant.exceptions import RequestError
from airflow_provider_raytenant.hooks import log_settings
from airflow_provider_raytenant.provider_info import get_provider_info

SETTINGS = {"log_max_bytes": log_settings.max_bytes, "live_logs": log_settings.live_logs}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_default_is_the_one_that_is_declared(name: str) -> None:
    declared = get_provider_info()["config"]["raytenant"]["options"][name]["default"]
    assert str(SETTINGS[name]()) == declared


@pytest.mark.parametrize("name", SETTINGS)
def test_the_configuration_decides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIRFLOW__RAYTENANT__{name.upper()}", " 4096 ")
    assert SETTINGS[name]() == 4096


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "", "9" * 30])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_wrong_value_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIRFLOW__RAYTENANT__{name.upper()}", value)
    ask: Callable[[], int] = SETTINGS[name]
    with pytest.raises(RequestError, match=rf"\[raytenant\] {name}: found '.*'; allowed: 1 to \d+"):
        ask()
