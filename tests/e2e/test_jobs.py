"""One task, one Ray job: results, failures, time-outs, logs, sizes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stack.stack import Stack
from tests.e2e.runs import ended, finish, jobs, log, start, until


def test_a_result_becomes_the_tasks_xcom_and_downstream_gets_it_as_it_is(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "result")
    assert state == "success", log(stack, "result", run_id, "make")
    assert stack.api.xcom("result", run_id, "make") == {"files": 0, "quoted": "a  b"}
    assert stack.api.xcom("result", run_id, "use") == "a  b"
    text = log(stack, "result", run_id, "make")
    assert "is SUCCEEDED" in text
    assert "::raytenant-end::" not in text


def test_a_failure_is_retried_and_carries_rays_words_into_log_and_xcom(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "fails")
    assert state == "failed"
    found = jobs(stack, run_id, "fails")
    assert [job["driver_exit_code"] for job in found] == [3, 3]
    assert len({job["submission_id"] for job in found}) == 2
    failure = stack.api.xcom("fails", run_id, "exit3", "raytenant_failure")
    assert failure["error"] == "JobFailedError"
    assert failure["exit_code"] == 3
    assert failure["error_type"] == "JOB_ENTRYPOINT_COMMAND_ERROR"
    assert "exit code 3" in failure["ray_message"]
    assert failure["retryable"] is True
    text = log(stack, "fails", run_id, "exit3", 2)
    assert "before the end" in text
    assert "the entrypoint failed with exit code 3" in text
    assert "JOB_ENTRYPOINT_COMMAND_ERROR" in text


def test_what_a_retry_cannot_mend_fails_without_using_retries_up(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "bad_result")
    assert state == "failed"
    assert len(jobs(stack, run_id, "bad_result")) == 1
    task = stack.api.task_instance("bad_result", run_id, "nan")
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert "$.auc[1]" in log(stack, "bad_result", run_id, "nan")


def test_a_request_that_fits_no_node_fails_at_once_with_the_numbers(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "fits_nowhere")
    assert state == "failed"
    assert jobs(stack, run_id, "fits_nowhere") == []
    text = log(stack, "fits_nowhere", run_id, "fpga")
    assert "asks for 1 CPU + 256MiB + 1 fpga; the largest alive node has 12 CPU + 6GiB + 0 fpga" in text
    assert stack.api.task_instance("fits_nowhere", run_id, "fpga")["try_number"] == 1
    failure = stack.api.xcom("fits_nowhere", run_id, "fpga", "raytenant_failure")
    assert (failure["error"], failure["retryable"]) == ("DoesNotFitError", False)


def test_job_timeout_ends_the_job_and_says_so(stack: Stack, started: dict[str, str]) -> None:
    run_id, state = ended(stack, started, "times_out")
    assert state == "failed"
    assert stack.api.xcom("times_out", run_id, "sleeper", "raytenant_failure")["error"] == "JobTimeoutError"
    assert [job["driver_exit_code"] for job in jobs(stack, run_id, "times_out")] == [124]


def test_execution_timeout_is_kept_while_the_task_is_deferred(stack: Stack, started: dict[str, str]) -> None:
    run_id, state = ended(stack, started, "outlives")
    assert state == "failed"
    failure = stack.api.xcom("outlives", run_id, "sleeper", "raytenant_failure")
    assert (failure["error"], failure["deadline"]) == ("JobTimeoutError", "execution_timeout")
    assert [job["status"] for job in jobs(stack, run_id, "outlives")] == ["STOPPED"]
    assert "execution_timeout of 12 s" in log(stack, "outlives", run_id, "sleeper")


def test_an_exit_code_skips_the_task(stack: Stack, started: dict[str, str]) -> None:
    run_id, state = ended(stack, started, "skips")
    assert state == "success"
    assert stack.api.task_instance("skips", run_id, "skip")["state"] == "skipped"
    assert "nothing to do" in log(stack, "skips", run_id, "skip")


def test_requirements_that_nobody_can_meet_fail_with_pips_own_words_and_use_no_retry(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "bad_pip")
    assert state == "failed"
    assert stack.api.task_instance("bad_pip", run_id, "setup")["try_number"] == 1
    failure = stack.api.xcom("bad_pip", run_id, "setup", "raytenant_failure")
    assert (failure["error"], failure["retryable"]) == ("RuntimeEnvError", False)
    assert "No matching distribution found for raytenant-there-is-no-such-package" in failure["message"]
    text = log(stack, "bad_pip", run_id, "setup")
    assert "No matching distribution found for raytenant-there-is-no-such-package" in text


def test_mark_failed_and_clear_stop_the_job(stack: Stack) -> None:
    run_id = start(stack, "sleeps")

    def running(count: int) -> bool:
        found = jobs(stack, run_id, "sleeps")
        return len(found) == count and found[-1]["status"] == "RUNNING"

    def stopped(count: int) -> bool:
        return [job["status"] for job in jobs(stack, run_id, "sleeps")][:count] == ["STOPPED"] * count

    until(lambda: running(1), "the first job", 90)
    until(lambda: stack.api.task_instance("sleeps", run_id, "sleeper")["state"] == "deferred", "the deferral")
    stack.api.clear("sleeps", run_id)
    took = until(lambda: stopped(1), "the stop of the cleared task's job", 60)
    print(f"a clear stopped the job after {took:.1f} s")
    until(lambda: running(2), "the job of the new try", 90)
    stack.api.mark_failed("sleeps", run_id, "sleeper")
    took = until(lambda: stopped(2), "the stop of the failed task's job", 60)
    print(f"mark failed stopped the job after {took:.1f} s")
    assert finish(stack, "sleeps", run_id) == "failed"


def test_marking_a_task_failed_that_waits_on_its_worker_stops_the_job(stack: Stack) -> None:
    run_id = start(stack, "waits")

    def status() -> list[str]:
        return [job["status"] for job in jobs(stack, run_id, "waits")]

    until(lambda: status() == ["RUNNING"], "the job", 90)
    stack.api.mark_failed("waits", run_id, "sleeper")
    took = until(lambda: status() == ["STOPPED"], "the stop of the failed task's job", 60)
    print(f"mark failed stopped the job of a waiting worker after {took:.1f} s")


def test_tasks_can_be_mapped_over_the_result_of_a_job(stack: Stack, started: dict[str, str]) -> None:
    run_id, state = ended(stack, started, "maps_over")
    assert state == "success"
    assert [stack.api.xcom("maps_over", run_id, "double", map_index=n) for n in range(3)] == [2, 4, 6]


def test_a_task_with_outlets_ends_on_a_worker_and_its_asset_event_is_there(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "outlets")
    assert state == "success", log(stack, "outlets", run_id, "produce")
    assert stack.api.xcom("outlets", run_id, "produce") == 41
    events = stack.api.call("GET", "/assets/events", source_run_id=run_id)["asset_events"]
    assert [event["uri"] for event in events] == ["raytenant://probe/"]


def test_without_deferring_the_worker_waits_and_hands_the_result_on(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "on_worker")
    assert state == "success", log(stack, "on_worker", run_id, "wait")
    assert stack.api.xcom("on_worker", run_id, "wait") == 42
    assert "on the worker" in log(stack, "on_worker", run_id, "wait")


def test_mapped_tasks_hold_the_slots_of_their_footprint(stack: Stack, started: dict[str, str]) -> None:
    run_id, state = ended(stack, started, "mapped")
    assert state == "success"
    tasks = stack.api.task_instances("mapped", run_id)
    # 1 CPU and two halves make two slots; 256 MiB and two times 256 MiB as well.
    assert {(task["pool"], task["pool_slots"]) for task in tasks} == {("ray.acme", 2)}
    assert [stack.api.xcom("mapped", run_id, "each", map_index=index) for index in (0, 1)] == [1, 2]


def test_the_link_opens_the_job_on_rays_dashboard(stack: Stack, started: dict[str, str]) -> None:
    run_id, state = ended(stack, started, "result")
    assert state == "success"
    links = stack.api.call("GET", f"/dags/result/dagRuns/{run_id}/taskInstances/make/links")["extra_links"]
    job = jobs(stack, run_id, "result")[0]["submission_id"]
    assert links == {"Ray job": f"{stack.ray.dashboard_url}/#/jobs/{job}"}


@pytest.mark.timeout(600)
def test_dags_test_works_and_a_failed_job_fails_there_too(stack: Stack) -> None:
    def said(dag_id: str) -> str:
        # It parses and writes every DAG before it runs this one, and does not care for pools.
        answer = stack.airflow.cli("dags", "test", dag_id, check=False, timeout=250)
        return answer.stdout + answer.stderr

    def said_alone(dag_id: str) -> str:
        """Once more if the stack's own triggerer has taken the trigger, too, and stopped its job.

        `dags test` sets a deferred task to *queued* before it runs the trigger by itself. A triggerer
        that looks in between takes it, and lets go of it like that of a task that was cleared.
        """
        text = said(dag_id)
        return said(dag_id) if "the job was stopped, and not by its task" in text else text

    with ThreadPoolExecutor() as side_by_side:
        good, bad = side_by_side.map(said_alone, ("result", "times_out"))
    assert "state=success" in good, good
    assert "ran longer than its job_timeout" in bad, bad
    assert "state=failed" in bad, bad
