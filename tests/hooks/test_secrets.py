"""Secrets by reference become values, which Airflow's masker then knows."""

from __future__ import annotations

import pytest
from airflow.sdk._shared.secrets_masker import redact

from airflow_provider_raytenant.domain.secrets import Secret, checked_secrets
from airflow_provider_raytenant.exceptions import RequestError, SecretNotFoundError
from airflow_provider_raytenant.hooks.secrets import LARGEST_BYTES, look_up


@pytest.fixture(autouse=True)
def airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_ACME_KEY", "a-value-of-acme")
    monkeypatch.setenv("AIRFLOW_CONN_ACME_DSN", "postgres://scott:tiger-1234@db:5432/acme")
    monkeypatch.setenv("AIRFLOW_VAR_EMPTY", "")
    monkeypatch.setenv("AIRFLOW_VAR_LONG", "x" * (LARGEST_BYTES + 1))


def test_variables_and_connections_are_looked_up_and_masked_from_then_on() -> None:
    secrets = {"KEY": Secret.variable("acme_key"), "DSN": Secret.connection("acme_dsn")}
    values = look_up(secrets)
    assert values == {"KEY": "a-value-of-acme", "DSN": "postgres://scott:tiger-1234@db:5432/acme"}
    assert redact("it is a-value-of-acme") == "it is ***"


@pytest.mark.parametrize("secret", [Secret.variable("none"), Secret.connection("none")])
def test_what_airflow_does_not_know_is_one_clear_error(secret: Secret) -> None:
    with pytest.raises(SecretNotFoundError, match=f"secrets: found {secret}, which Airflow does not know"):
        look_up({"KEY": secret})


@pytest.mark.parametrize("name", ["empty", "long"])
def test_what_cannot_stand_in_an_environment_is_refused_without_being_shown(name: str) -> None:
    with pytest.raises(RequestError, match=r"secrets\['KEY'\]: found a value of \d+ bytes") as refused:
        look_up({"KEY": Secret.variable(name)})
    assert "xxx" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"1A": Secret.variable("a")}, "found the name '1A'"),
        ({"RAYTENANT_CLAIM": Secret.variable("a")}, "without RAYTENANT_"),
        ({"A": "plain"}, "secrets['A']: found a str"),
        (["A"], "secrets: found a list"),
    ],
)
def test_what_is_no_reference_is_refused_without_being_shown(given: object, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        checked_secrets(given)
    assert words in str(refused.value)
    assert "plain" not in str(refused.value)


@pytest.mark.parametrize("name", ["", " ", None, 7])
def test_a_reference_names_something(name: object) -> None:
    with pytest.raises(RequestError, match="allowed: the name of a variable"):
        Secret.variable(name)  # type: ignore[arg-type]
