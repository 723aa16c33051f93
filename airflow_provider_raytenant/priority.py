"""Live runs come before backfills: what a task weighs in the scheduler's order, by the run it belongs to.

Airflow starts tasks by weight, and at equal weight by logical date, so that a backfill's tasks would go
before those of today. Every component of Airflow imports this with the plugin: it has to stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.task.priority_strategy import (
    PriorityWeightStrategy,
    get_airflow_priority_weight_strategies,
)
from airflow.task.weight_rule import WeightRule

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

BEHIND: Final = 1_000_000_000
"""What a backfill's task weighs less than the same task of a live run. The database takes 32 bits."""

LOWEST: Final = -(2**31)
"""The lowest weight that the database takes."""

BACKFILL: Final = "backfill"
"""``DagRunType.BACKFILL_JOB``: the type of a backfill's runs."""

_BACKFILL_RUN: Final = f"{BACKFILL}__"
"""What the ids of runs begin with that a backfill made. Runs that it found there keep theirs."""


class LiveFirst(PriorityWeightStrategy):
    """The weight that one of Airflow's own rules gives, less :data:`BEHIND` for tasks of a backfill.

    Strategies have no state of their own in a serialized DAG, so there is a class for each rule.
    """

    rule: ClassVar[WeightRule]

    def get_weight(self, ti: TaskInstance) -> int:
        """The weight of a task instance of a live run or a backfill."""
        weight: int = get_airflow_priority_weight_strategies()[self.rule]().get_weight(ti)
        return max(LOWEST, weight - BEHIND) if is_backfill(ti) else weight


class LiveFirstAbsolute(LiveFirst):
    """The task's own weight."""

    rule = WeightRule.ABSOLUTE


class LiveFirstDownstream(LiveFirst):
    """The weights of the task and all that come after it."""

    rule = WeightRule.DOWNSTREAM


class LiveFirstUpstream(LiveFirst):
    """The weights of the task and all that come before it."""

    rule = WeightRule.UPSTREAM


STRATEGIES: Final = (LiveFirstAbsolute, LiveFirstDownstream, LiveFirstUpstream)
"""For the plugin: what it does not name cannot be read back from a serialized DAG."""


def _path(strategy: type[PriorityWeightStrategy]) -> str:
    return f"{strategy.__module__}.{strategy.__qualname__}"


_BY_RULE: Final = {strategy.rule: _path(strategy) for strategy in STRATEGIES}


def live_first(weight_rule: Any) -> Any:
    """The weight rule of a task, with backfills behind live runs.

    :param weight_rule: the author's, or Airflow's default: ``"absolute"``, ``"downstream"``, ``"upstream"``,
        or one of Airflow's own strategies; ``None`` is the second, as for the scheduler. Anything else is
        left alone.
    :returns: the path of a class here, a text: a strategy among a mapped task's arguments does not survive
        serialization, its path does.
    """
    if weight_rule is None:
        return _BY_RULE[WeightRule.DOWNSTREAM]
    path = _path(type(weight_rule)) if isinstance(weight_rule, PriorityWeightStrategy) else weight_rule
    airflows = get_airflow_priority_weight_strategies()
    if not isinstance(path, str) or path not in airflows:
        return weight_rule
    return next(ours for rule, ours in _BY_RULE.items() if airflows[rule] is airflows[path])


def is_backfill(ti: TaskInstance, dag_run: Any = None) -> bool:
    """Whether a task instance belongs to a backfill, as far as is known without asking the database.

    A run that a backfill found there and runs again keeps its id, and says so in its type only; that is not
    at hand everywhere.
    """
    if str(ti.run_id or "").startswith(_BACKFILL_RUN):
        return True
    if dag_run is not None:
        return bool(dag_run.run_type == BACKFILL)
    # Not `ti.dag_run.run_type`: that would load what is not there.
    return bool(_loaded(_loaded(ti).get("dag_run")).get("run_type") == BACKFILL)


def _loaded(row: Any) -> dict[str, Any]:
    return getattr(row, "__dict__", {})


def keeps_its_id(dag_run: Any) -> bool:
    """Whether a run belongs to a backfill that did not make it."""
    return bool(dag_run.run_type == BACKFILL) and not str(dag_run.run_id).startswith(_BACKFILL_RUN)


def demoted(weight: int) -> int:
    """The weight of a backfill's task, whether it was lowered before or not.

    By its size it is told which of the two: an author's weights are below half of :data:`BEHIND`.
    """
    return weight if weight < -BEHIND // 2 else max(LOWEST, weight - BEHIND)
