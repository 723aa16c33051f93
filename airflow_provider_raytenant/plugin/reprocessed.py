"""Runs that a backfill found and runs again (``--reprocess-behavior``): the scheduler's listener for them.

Such a run keeps its id, and a backfill clears its tasks *before* it makes the run its own
(``airflow.models.backfill._handle_clear_run``, Airflow 3.3). So neither the weight of its tasks nor a cluster
policy could know. When the run starts it can be known, and none of its tasks is queued yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from airflow_provider_raytenant.priority import LiveFirst, demoted, keeps_its_id

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Put the tasks of a reprocessed run behind live ones, and let the cluster policy look at them again.

    Called by the scheduler within its own transaction, which writes what is changed here. The policy is the
    deployment's own: without ``airflow_local_settings.py`` nothing more happens.
    """
    if not keeps_its_id(dag_run):
        return
    from airflow import settings

    for ti, task in _waiting(dag_run):
        if isinstance(task.weight_rule, LiveFirst) and ti.priority_weight is not None:
            ti.priority_weight = demoted(ti.priority_weight)
        if not getattr(settings.task_instance_mutation_hook, "is_noop", False):
            settings.task_instance_mutation_hook(ti, dag_run=dag_run)


def _waiting(dag_run: DagRun) -> Iterator[tuple[TaskInstance, Any]]:
    """Task instances in pools of ours that are not scheduled yet, with their tasks."""
    tasks = dag_run.get_dag().task_dict
    for ti in dag_run.task_instances:
        if ti.state is None and ti.pool.startswith("ray.") and ti.task_id in tasks:
            yield ti, tasks[ti.task_id]
