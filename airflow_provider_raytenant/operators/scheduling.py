"""What the scheduler is told of a mapped task beyond its pool and slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_raytenant.operators.sizing import SIZING_ARGUMENTS
from airflow_provider_raytenant.priority import live_first

_TOLD: Final = ("tenant", *SIZING_ARGUMENTS)


def for_scheduler(partial_kwargs: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``partial()`` to put in: the weight rule, and the defaults that decide over a footprint.

    Airflow keeps the ``default_args`` of DAG and task group out of a mapped task's serialized arguments, and
    the cluster policy, which sizes each of its instances, could take a missing ``memory`` for none.
    For the task itself they say what would hold anyway.

    :param partial_kwargs: what ``BaseOperator.partial()`` made of the arguments.
    :param defaults: the merged ``default_args``.
    """
    told = {name: defaults[name] for name in _TOLD if name in defaults and name not in partial_kwargs}
    # Never empty: without the key, the scheduler has a DAG of an older version before it.
    told["tenant"] = partial_kwargs.get("tenant", told.get("tenant"))
    return {"weight_rule": live_first(partial_kwargs.get("weight_rule")), "default_args": told}
