"""People change their mind: tasks are marked and cleared, runs failed and deleted, a DAG deleted.

The controller runs beside, as it does wherever the provider is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from stack.airflow_stack import CONTROLLER
from tests.faults.acts import Act, Fault
from tests.faults.conftest import tenant_file
from tests.faults.dags.fault_lanes import PLAIN
from tests.faults.world import Run, World, until

ACT = Act()
HEAD = {"raytenant.local/node": "head"}


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    airflow = world.stack.airflow
    # The one lane alone: with all of them the same jobs would be swept some twenty times as often.
    file = world.stack.directory / "plain.yaml"
    file.write_text(tenant_file((PLAIN,)))
    airflow.start_process(CONTROLLER, options=("--interval", "5", "--file", str(file)))
    with ACT.play(world) as futures:
        yield futures
    airflow.stop_process(CONTROLLER)
    # It took the pools of the other tenants for those of tenants that are gone.
    airflow.cli("raytenant", "pools", "sync")


def deferred(run: Run) -> Run:
    """Wait until the job runs and the task waits for it in the triggerer."""
    run.wait_started()
    run.wait_state("deferred")
    return run


@ACT.fault("marked failed while the job runs")
def marked_failed(fault: Fault) -> None:
    run = deferred(fault.run(PLAIN, ends="failed"))
    fault.hurt()
    fault.api.mark_failed(PLAIN, run.run_id, "job")
    run.wait_stopped()
    fault.well()


@ACT.fault("marked success while the job runs")
def marked_success(fault: Fault) -> None:
    run = deferred(fault.run(PLAIN))
    fault.hurt()
    fault.api.mark_task(PLAIN, run.run_id, "job", "success")
    run.wait_stopped()
    fault.well()


@ACT.fault("cleared while the job runs")
def cleared(fault: Fault) -> None:
    run = deferred(fault.run(PLAIN, starts=(2,)))
    fault.hurt()
    fault.api.clear(PLAIN, run.run_id)
    run.wait_started(2)
    fault.well()
    run.release()
    run.wait_state("success")


@ACT.fault("cleared while its DAG is paused")
def cleared_paused(fault: Fault) -> None:
    run = deferred(fault.run("paused", starts=(2,)))
    fault.api.pause("paused")
    fault.hurt()
    fault.api.clear("paused", run.run_id)
    run.wait_stopped()
    fault.well()
    assert run.state is None
    fault.api.unpause("paused")
    run.wait_started(2)
    run.release()
    run.wait_state("success")


@ACT.fault("cleared together with its upstream")
def cleared_upstream(fault: Fault) -> None:
    # The upstream task takes longer than the stop: meanwhile the cleared task has no state.
    run = deferred(fault.run("upstream", starts=(2,), conf={"seconds": 20}))
    fault.hurt()
    fault.api.clear("upstream", run.run_id)
    run.wait_stopped()
    fault.well()
    assert run.state is None
    run.wait_started(2)
    run.release()
    run.wait_state("success")


@ACT.fault("run set to failed")
def run_failed(fault: Fault) -> None:
    run = deferred(fault.run(PLAIN, ends="failed"))
    fault.hurt()
    fault.api.mark_run(PLAIN, run.run_id, "failed")
    run.wait_stopped()
    fault.well()


@ACT.fault("run set to failed and deleted at once")
def run_deleted(fault: Fault) -> None:
    run = deferred(fault.run(PLAIN, ends="gone"))
    fault.hurt()
    fault.api.mark_run(PLAIN, run.run_id, "failed")
    fault.api.call("DELETE", f"/dags/{PLAIN}/dagRuns/{run.run_id}")
    run.wait_stopped()
    fault.well()


@ACT.fault("DAG deleted")
def dag_deleted(fault: Fault) -> None:
    run = deferred(fault.run("deleted", ends="gone"))
    fault.hurt()
    fault.api.call("DELETE", "/dags/deleted")
    run.wait_stopped()
    fault.well()


@ACT.fault("marked failed while the job waits in Ray; then room is made")
def pending(fault: Fault) -> None:
    ray = fault.world.stack.ray
    filler = {"submission_id": "filler", "entrypoint": "sleep 600", "entrypoint_num_cpus": 1}
    ray.api("POST", "/api/jobs/", {**filler, "entrypoint_label_selector": HEAD})
    until(lambda: ray.api("GET", "/api/jobs/filler")["status"] == "RUNNING", "the filler")
    run = fault.run("full", ends="failed", starts=(0,))
    until(lambda: [job["status"] for job in run.jobs()] == ["PENDING"], "the job in Ray", 60, run.told)
    run.wait_state("deferred")
    fault.hurt()
    fault.api.mark_failed("full", run.run_id, "job")
    stop = f"^/api/jobs/{run.jobs()[0]['submission_id']}/stop$"
    until(lambda: fault.proxy.count(PLAIN, "POST", stop), "the stop of the waiting job", 60, run.told)
    ray.api("POST", "/api/jobs/filler/stop")
    run.wait_stopped(90)
    fault.well()


@pytest.mark.parametrize("name", ACT.names)
def test_the_job_is_stopped(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
