"""Pauses: nothing new of a tenant, or on a cluster, starts, and what runs ends. Pure.

A pause stands in the descriptions of the pools that it closes. There it is written in the same transaction
as their sizes, needs no Ray (which may be away for an upgrade), and whoever looks at Airflow's pools sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.exceptions import RequestError

_SEPARATOR: Final = "; "
_WORDS: Final = "paused with "


@dataclass(frozen=True, order=True)
class Target:
    """What is paused: ``cluster shared`` or ``tenant acme``."""

    kind: Literal["cluster", "tenant"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def find_target(file: TenantFile, text: str) -> Target:
    """The tenant or cluster that a person means: ``acme``, or where both have that name ``tenant:acme``.

    :raises RequestError: saying what was found and what is allowed.
    """
    kind, colon, name = text.partition(":")
    if not colon:
        kind, name = "", text
    found: list[Target] = []
    if kind in ("", "cluster") and name in file.clusters:
        found.append(Target("cluster", name))
    if kind in ("", "tenant") and name in file.tenants:
        found.append(Target("tenant", name))
    if len(found) == 1:
        return found[0]
    if found:
        raise RequestError(f"found {text!r}, a cluster and a tenant; allowed: cluster:{name}, tenant:{name}")
    known = f"clusters {', '.join(sorted(file.clusters))}; tenants {', '.join(sorted(file.tenants))}"
    raise RequestError(f"found {text!r}; allowed: {known}")


def pauses_in(description: str) -> frozenset[Target]:
    """The pauses that a pool's description speaks of.

    >>> pauses_in("Made by raytenant; paused with tenant acme; one slot is 1 CPU")
    frozenset({Target(kind='tenant', name='acme')})
    """
    return frozenset(_pauses(description.split(_SEPARATOR)))


def with_pauses(description: str, pauses: Iterable[Target]) -> str:
    """The description with these pauses, and no others, before its last part."""
    *parts, last = [part for part in description.split(_SEPARATOR) if not part.startswith(_WORDS)] or [""]
    return _SEPARATOR.join([*parts, *(f"{_WORDS}{pause}" for pause in sorted(pauses)), last])


def _pauses(parts: Iterable[str]) -> Iterator[Target]:
    for part in parts:
        if part.startswith(_WORDS):
            kind, _, name = part.removeprefix(_WORDS).partition(" ")
            if kind == "cluster":
                yield Target("cluster", name)
            elif kind == "tenant":
                yield Target("tenant", name)
