"""Nothing secret enters a request: Ray shows it to everyone on the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow.sdk._shared.secrets_masker import redact

from airflow_provider_raytenant.exceptions import PolicyError

_CREDENTIALS_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def refuse_secrets(request: Mapping[str, Any]) -> None:
    """Ray shows the request to everyone on the cluster and Airflow stores it in plain text.

    What Airflow's secrets masker knows as a secret (a connection's password, a sensitive variable that
    a template read) must not be in it.
    """
    shown = {key: value for key, value in request.items() if key != "submission_id"}
    for path, text in _texts(shown, ""):
        if path.startswith("runtime_env.") and _CREDENTIALS_IN_URL.search(text):
            raise PolicyError(
                f"{path}: found a URL with a password in it; allowed: values that everyone on the cluster "
                "may see (Ray shows them)",
                rule="secrets",
            )
        if redact(text) != text:
            raise PolicyError(
                f"{path}: found a value that Airflow knows as a secret; allowed: values that everyone "
                "on the cluster may see (Ray shows them)",
                rule="secrets",
            )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]")
