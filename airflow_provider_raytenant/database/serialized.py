"""The tasks of serialized DAGs, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.models.serialized_dag import SerializedDagModel

Field = Callable[[str], Any]
"""Gives a field of a serialized task by its name."""


def tasks_of(serialized: SerializedDagModel | None) -> Iterator[Field]:
    """For each task, what gives a field of it by name; ``None`` where it has its default.

    Mapped tasks keep most of their fields among ``partial_kwargs``.
    """
    data = serialized.data if serialized is not None else None
    for task in (data or {}).get("dag", {}).get("tasks", []):
        fields = task.get("__var", task)
        yield _getter(fields, fields.get("partial_kwargs") or {})


def _getter(fields: dict[str, Any], partial: dict[str, Any]) -> Field:
    def get(name: str) -> Any:
        value = fields.get(name)
        return partial.get(name) if value is None else value

    return get
