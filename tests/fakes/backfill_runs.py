"""A process of its own: Airflow's code makes, starts, expands, clears and reprocesses runs of a small DAG.

It prints one JSON line: by stage, what each task instance's pool, slots and weight are. What a process has of
``airflow_local_settings.py`` is settled when Airflow is imported, so each way needs a fresh one.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow import settings
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.backfill import Backfill, ReprocessBehavior, _create_backfill
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.models.taskmap import TaskMap
from airflow.sdk import DAG, task
from airflow.serialization.definitions.dag import SerializedDAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.db import import_all_models, synchronize_log_template
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import prohibit_commit
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select, update

from airflow_provider_raytenant.operators.job import RayTenantJobOperator

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
LIVE = FIRST + timedelta(days=10)
POOLS = {"ray.acme": 3, "ray.acme.backfill": 3, "default_pool": 8}


def make_dag() -> DAG:
    with DAG("etl", start_date=FIRST, schedule="@daily", catchup=False) as dag:

        @task
        def names() -> list[str]:
            return ["a", "b"]

        common: Any = {"tenant": "acme", "entrypoint": "true"}
        plain = RayTenantJobOperator(task_id="plain", priority_weight=3, **common)
        RayTenantJobOperator(task_id="big", num_cpus=7, **common)
        RayTenantJobOperator.partial(task_id="literal", pool_slots=4, **common).expand(num_cpus=[1, 2, 9])
        plain >> RayTenantJobOperator.partial(task_id="dynamic", tenant="acme").expand(entrypoint=names())
    return dag


def set_up(dag: DAG) -> None:
    import_all_models()
    Base.metadata.create_all(settings.get_engine())
    synchronize_log_template()
    with create_session() as session:
        session.add(DagBundleModel(name="dags"))
        for name, slots in POOLS.items():
            session.add(Pool(pool=name, slots=slots, description="", include_deferred=True))
        session.flush()
        lazy = LazyDeserializedDAG.from_dag(dag)
        SerializedDAG.bulk_write_to_db("dags", None, [lazy], parse_duration=None, session=session)
        session.flush()
        SerializedDagModel.write_dag(lazy, bundle_name="dags", session=session)
        session.execute(update(DagModel).values(is_paused=False, is_stale=False))


class World:
    def __init__(self) -> None:
        self.stages: dict[str, Any] = {}
        with create_session() as session:
            job = Job()
            session.add(job)
            session.flush()
        self.runner = SchedulerJobRunner(job=job)
        self.runner.scheduler_dag_bag = DBDagBag(load_op_links=False)

    def note(self, stage: str) -> None:
        with create_session() as session:
            self.stages[stage] = {
                f"{ti.run_id.split('T')[0]} {ti.task_id} {ti.map_index}": [
                    ti.pool,
                    ti.pool_slots,
                    ti.priority_weight,
                ]
                for ti in session.scalars(select(TaskInstance))
            }

    def live_run(self) -> None:
        with create_session() as session:
            dag = DBDagBag().get_latest_version_of_dag("etl", session=session)
            dag.create_dagrun(
                run_id=f"scheduled__{LIVE.isoformat()}",
                logical_date=LIVE,
                data_interval=(LIVE, LIVE + timedelta(days=1)),
                run_after=LIVE,
                run_type=DagRunType.SCHEDULED,
                triggered_by=DagRunTriggeredByType.TIMETABLE,
                state=DagRunState.QUEUED,
                session=session,
            )

    def backfill(self, day: datetime, behavior: ReprocessBehavior) -> None:
        _create_backfill(
            dag_id="etl",
            from_date=day,
            to_date=day,
            max_active_runs=5,
            reverse=False,
            triggering_user_name="me",
            dag_run_conf={},
            reprocess_behavior=behavior,
        )

    def schedule(self) -> None:
        with create_session() as session:
            session.execute(update(DagRun).values(last_scheduling_decision=None))
        with create_session() as session, prohibit_commit(session) as guard:
            self.runner._start_queued_dagruns(session)
            guard.commit()
            runs = DagRun.get_running_dag_runs_to_examine(session=session)
            self.runner._schedule_all_dag_runs(guard, runs, session)
            guard.commit()

    def first_of_pool(self, pool: str) -> list[str]:
        """The runs and tasks that the scheduler would queue now, in its order."""
        with create_session() as session:
            chosen = self.runner._executable_task_instances_to_queued(max_tis=50, session=session)
            order = [
                f"{ti.run_id.split('T')[0]} {ti.task_id} {ti.map_index}" for ti in chosen if ti.pool == pool
            ]
            session.rollback()
        return order

    def finish(self, *task_ids: str, length: int = 2) -> None:
        with create_session() as session:
            for ti in session.scalars(select(TaskInstance).where(TaskInstance.task_id.in_(task_ids))):
                ti.state, ti.start_date, ti.end_date = "success", LIVE, LIVE
                key = {"dag_id": "etl", "task_id": "names", "run_id": ti.run_id, "map_index": -1}
                if ti.task_id == "names":
                    session.merge(TaskMap(**key, length=length, keys=None))

    def finish_all(self) -> None:
        with create_session() as session:
            session.execute(update(TaskInstance).values(state="success"))
            session.execute(update(DagRun).values(state="success"))
            session.execute(update(Backfill).values(completed_at=LIVE))

    def clear(self, run: str, *task_ids: str) -> None:
        with create_session() as session:
            wanted = TaskInstance.run_id.startswith(run) & TaskInstance.task_id.in_(task_ids)
            clear_task_instances(list(session.scalars(select(TaskInstance).where(wanted))), session)


def main() -> None:
    set_up(make_dag())
    world = World()
    world.live_run()
    world.backfill(FIRST, ReprocessBehavior.NONE)
    world.note("made")
    world.schedule()
    world.stages["order"] = {pool: world.first_of_pool(pool) for pool in POOLS}
    world.finish("names", "plain")
    world.schedule()
    world.note("expanded")
    world.clear("backfill__", "literal", "big")
    world.note("cleared")
    world.finish_all()
    world.backfill(LIVE, ReprocessBehavior.COMPLETED)
    world.note("reprocess made")
    world.schedule()
    world.note("reprocess started")
    world.clear("scheduled__", "plain", "literal")
    world.note("reprocess cleared")
    world.finish("names", "plain", length=3)
    world.schedule()
    world.note("reprocess grown")
    json.dump(world.stages, sys.stdout)


if __name__ == "__main__":
    main()
