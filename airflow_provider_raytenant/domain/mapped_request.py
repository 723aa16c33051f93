"""What one of many mapped task instances asks for, read from the serialized DAG. Pure.

A serialized DAG keeps the arguments of ``partial()`` and literal ones of ``expand()`` as JSON, and
:class:`Workers` as its text, but not the order of the arguments (Airflow 3.3: the column is JSONB). A change
of nothing but the order of texts, ``memory=["1GiB", "2GiB"]``, is none for Airflow: the old one stays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any, Final

from airflow_provider_raytenant.domain.job_spec import Placement, place
from airflow_provider_raytenant.domain.resources import Workers, request
from airflow_provider_raytenant.domain.tenants import Cluster, DedicatedNodes, Tenant
from airflow_provider_raytenant.exceptions import RequestError

DECIDES: Final = ("num_cpus", "num_gpus", "memory", "resources", "workers")
"""The operator's arguments that make a footprint."""

_MOST_TEXT: Final = 10_000
"""Characters of a text that may be a :class:`Workers`."""


def own_placement(
    tenant: Tenant,
    cluster: Cluster,
    dedicated: Iterable[DedicatedNodes],
    *,
    partial_kwargs: Mapping[str, Any],
    expand: Any,
    map_index: int,
) -> Placement | None:
    """Where one mapped task instance would queue by itself, if it maps over its footprint.

    :param partial_kwargs: with the ``default_args`` that decide, see ``operators/scheduling.py``.
    :param expand: of ``expand()``: name to values; of ``expand_kwargs()``: a list of names to value.
    :returns: ``None`` where something that decides cannot be read, or is wrong: the task itself says so.
    """
    mapped = _mapped(expand, map_index) if maps_over_footprint(expand, map_index) else None
    defaults = partial_kwargs.get("default_args")
    if mapped is None or not isinstance(defaults, Mapping):
        return None
    given = {"num_cpus": 1, "num_gpus": 0, **defaults, **partial_kwargs, **mapped}
    try:
        amounts = [given.get(name) for name in ("num_cpus", "memory", "num_gpus", "resources")]
        driver = request("", amounts[0], amounts[1], amounts[2], amounts[3])
        workers = _workers(given.get("workers"))
        selector = _selector(given.get("label_selector"))
        return place(tenant, cluster, driver, workers, selector, tuple(dedicated))
    except (ValueError, TypeError, RequestError):
        return None


def _mapped(expand: Any, map_index: int) -> Mapping[str, Any] | None:
    """The arguments of one instance; ``None`` where one comes out of an upstream task."""
    if isinstance(expand, Mapping):
        if not all(isinstance(values, (list, tuple)) and values for values in expand.values()):
            return None
        # Which of them turns fastest is a matter of their order, which is not known here.
        turning = [name for name, values in expand.items() if len(values) > 1]
        if len(turning) > 1 or map_index >= max(map(len, expand.values()), default=0):
            return None
        return {name: values[map_index if name in turning else 0] for name, values in expand.items()}
    return expand[map_index] if isinstance(expand[map_index], Mapping) else None


def maps_over_footprint(expand: Any, map_index: int) -> bool:
    """Whether the instances of a mapped task differ in what they ask for.

    In a list of arguments the instance's own and the first are looked at: there may be thousands, each time.
    """
    items = [expand]
    if isinstance(expand, (list, tuple)) and 0 <= map_index < len(expand):
        items = [expand[map_index], expand[0]]
    return any(name in item for item in items if isinstance(item, Mapping) for name in DECIDES)


def _selector(value: Any) -> Mapping[str, str] | None:
    if value is None:
        return None
    if isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair):
        return dict(value)
    raise ValueError(f"label_selector: found {value!r}; allowed: a dict of label to condition, both texts")


def _workers(value: Any) -> Workers | None:
    """From itself or from its text, ``Workers(count=4, num_cpus=2.0, ...)``, without running anything.

    :raises ValueError: it is neither.
    """
    if value is None or isinstance(value, Workers):
        return value
    if not isinstance(value, str) or len(value) > _MOST_TEXT:
        raise ValueError(f"workers: found {value!r}; allowed: the text of Workers")
    try:
        call = ast.parse(value, mode="eval").body
        if not isinstance(call, ast.Call) or getattr(call.func, "id", None) != Workers.__name__ or call.args:
            raise ValueError(f"workers: found {value!r}; allowed: the text of Workers")
        return Workers(**{str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"workers: found {value!r}; allowed: the text of Workers") from error
