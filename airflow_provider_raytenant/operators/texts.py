"""Rendered texts that can go on: into a path, a request, Airflow's database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_raytenant.exceptions import RequestError

if TYPE_CHECKING:
    from airflow_provider_raytenant.operators.job import RayTenantJobOperator

# NUL ends a path and is refused by PostgreSQL; half of a surrogate pair has no UTF-8.
_BROKEN = re.compile("[\0\ud800-\udfff]")


def refuse_broken_texts(operator: RayTenantJobOperator) -> None:
    """Refuse rendered arguments with characters that no path, request or database can hold.

    :raises RequestError: naming the argument.
    """
    for argument in operator.template_fields:
        for path, text in _texts(getattr(operator, argument), argument):
            broken = _BROKEN.search(text)
            if broken:
                raise RequestError(
                    f"{path}: found the character {broken[0]!a}; "
                    "allowed: text of UTF-8 without NUL characters"
                )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key, f"{path}, a key")
            yield from _texts(inner, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]")
