"""The machine that turns what was seen of a job into what to do next."""

from __future__ import annotations

import pytest

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.lifecycle import (
    CHECK_EVERY,
    STOP_PATIENCE,
    SUSPECT_FOR,
    TIMEOUT_GRACE,
    UNKNOWN_FOR,
    WAITING_STOP_PATIENCE,
    WOKEN_FOR,
    CheckSupervisor,
    End,
    Lifecycle,
    Limits,
    Look,
    Stop,
    Submit,
    Wake,
)
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobLostError,
    JobStartTimeoutError,
    JobTimeoutError,
    RayUnavailableError,
)

AWAY = RayUnavailableError("Ray at http://head:8265 cannot be reached: refused")


def job(status: str) -> JobInfo:
    return JobInfo("j", JobStatus(status), driver_node_id="a" * 56 if status == "RUNNING" else None)


PENDING, RUNNING, SUCCEEDED, STOPPED, FAILED = map(
    job, ("PENDING", "RUNNING", "SUCCEEDED", "STOPPED", "FAILED")
)


def submitted(**limits: float) -> Lifecycle:
    """A machine whose job Ray took at time 0."""
    life = Lifecycle("j", Limits(**limits), 0.0)
    assert life.begin() == Submit()
    assert isinstance(life.submitted(True, 0.0), Look)
    return life


def test_a_job_that_does_well() -> None:
    life = submitted()
    assert isinstance(life.saw(PENDING, 1), Look)
    assert isinstance(life.saw(RUNNING, 2), Look)
    assert life.saw(SUCCEEDED, 3) == End(SUCCEEDED)
    assert life.notes == [
        "Job j submitted.",
        "Job j is PENDING.",
        "Job j is RUNNING on node aaaaaaaaaaaa.",
        "Job j is SUCCEEDED.",
    ]


def test_a_job_that_was_there_is_looked_at_at_once() -> None:
    life = Lifecycle("j", Limits(), 0.0)
    assert life.submitted(False, 0.0) == Look(0.0)
    assert life.notes == ["Job j found, following it."]
    assert Lifecycle("j", Limits(), 0.0).begin(there=True) == Look(0.0)


def test_an_outage_is_told_once_and_each_has_the_whole_budget() -> None:
    life = submitted(outage_budget=100)
    for begun in (0, 1000):
        assert isinstance(life.outage(AWAY, begun), Look)
        assert isinstance(life.outage(AWAY, begun + 99), Look)
        life.saw(RUNNING, begun + 99.5)
    assert sum("Trying for 100 s" in note for note in life.notes) == 2
    assert sum(note == "Ray answers again." for note in life.notes) == 2
    life.outage(AWAY, 2000)
    assert life.outage(AWAY, 2101) == End(None, AWAY)


def test_an_outage_at_the_submit_leads_to_another_submit() -> None:
    life = Lifecycle("j", Limits(), 0.0)
    life.begin()
    step = life.outage(AWAY, 0.0)
    assert isinstance(step, Submit)
    assert step.after > 0


def test_pauses_grow_in_an_outage_and_have_a_bound() -> None:
    life = submitted()
    pauses = [life.outage(AWAY, now).after for now in (0.0, 8.0, 16.0, 100.0, 500.0)]  # type: ignore[union-attr]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1.0, 10.0)


def test_a_job_that_ray_forgot_is_lost_if_ray_is_sure() -> None:
    life = submitted()
    life.saw(RUNNING, 1)
    assert isinstance(life.unknown(2), Look)
    end = life.unknown(2 + UNKNOWN_FOR)
    assert isinstance(end, End)
    assert isinstance(end.error, JobLostError)


def test_a_job_that_is_there_again_is_not_lost() -> None:
    life = submitted()
    life.unknown(2)
    life.saw(RUNNING, 3)
    assert isinstance(life.unknown(3 + UNKNOWN_FOR), Look)


def test_queue_timeout_stops_a_job_that_waits() -> None:
    life = submitted(queue_timeout=60)
    assert isinstance(life.saw(PENDING, 59), Look)
    assert life.saw(PENDING, 60) == Stop(0.0)
    assert isinstance(life.saw(PENDING, 61, cannot_start=True), Stop)
    end = life.saw(PENDING, 60 + WAITING_STOP_PATIENCE, cannot_start=True)
    assert isinstance(end, End)
    assert isinstance(end.error, JobStartTimeoutError)
    assert end.error.details["deadline"] == "queue_timeout"
    assert "queue_timeout of 60 s" in str(end.error)


def test_queue_timeout_counts_what_another_trigger_waited() -> None:
    life = Lifecycle("j", Limits(queue_timeout=60), 0.0)
    life.submitted(False, 0.0)
    assert isinstance(life.saw(PENDING, 1, age=50), Look)
    assert life.saw(PENDING, 11, age=60) == Stop(0.0)


def test_queue_timeout_is_over_once_the_job_runs() -> None:
    life = submitted(queue_timeout=60)
    life.saw(RUNNING, 59)
    assert not isinstance(life.saw(RUNNING, 70), Stop)


def test_job_timeout_is_backed_up_after_a_grace() -> None:
    life = submitted(job_timeout=100)
    life.saw(RUNNING, 10)
    assert not isinstance(life.saw(RUNNING, 10 + 100 + TIMEOUT_GRACE - 1), Stop)
    assert life.saw(RUNNING, 10 + 100 + TIMEOUT_GRACE) == Stop(0.0)
    end = life.saw(STOPPED, 10 + 100 + TIMEOUT_GRACE + 2)
    assert isinstance(end, End)
    assert isinstance(end.error, JobTimeoutError)
    assert end.error.details["deadline"] == "job_timeout"
    assert str(end.error).endswith("and was stopped")


@pytest.mark.parametrize("seen", [PENDING, RUNNING])
def test_execution_timeout_is_kept_whatever_the_job_does(seen: JobInfo) -> None:
    life = submitted(execution_timeout=300, execution_left=50)
    life.saw(seen, 49)
    assert life.saw(seen, 50) == Stop(0.0)
    end = life.saw(STOPPED, 52)
    assert isinstance(end, End)
    assert isinstance(end.error, JobTimeoutError)
    assert end.error.details == {"deadline": "execution_timeout", "seconds": 300}


def test_a_look_comes_in_time_for_execution_timeout() -> None:
    life = submitted(execution_timeout=300, execution_left=1000, poll_interval=60)
    assert life.saw(RUNNING, 10_000 - 9_000.5) in (Look(0.5), Look(1.0))


def test_a_job_that_was_done_before_its_stop_arrived_is_done() -> None:
    life = submitted(execution_left=50)
    life.saw(RUNNING, 50)
    assert life.saw(SUCCEEDED, 51) == End(SUCCEEDED)


def test_a_job_that_does_not_stop_is_given_up_with_a_word() -> None:
    life = submitted(execution_left=50)
    life.saw(RUNNING, 50)
    assert isinstance(life.saw(RUNNING, 50 + STOP_PATIENCE - 1), Stop)
    end = life.saw(RUNNING, 50 + STOP_PATIENCE)
    assert isinstance(end, End)
    assert "still lives" in str(end.error)


def test_a_deadline_in_an_outage_is_kept_when_ray_is_back() -> None:
    life = submitted(execution_left=50)
    life.saw(RUNNING, 10)
    assert isinstance(life.outage(AWAY, 40), Look)
    assert isinstance(life.outage(AWAY, 51), Stop)
    assert isinstance(life.saw(RUNNING, 60), Stop)
    end = life.saw(STOPPED, 62)
    assert isinstance(end, End)
    assert isinstance(end.error, JobTimeoutError)


def test_a_deadline_in_an_endless_outage_is_told() -> None:
    life = submitted(execution_left=50, outage_budget=100)
    life.outage(AWAY, 40)
    life.outage(AWAY, 51)
    end = life.outage(AWAY, 141)
    assert isinstance(end, End)
    assert isinstance(end.error, JobTimeoutError)
    assert "could not be stopped" in str(end.error)


def test_a_stopped_job_that_ray_forgot_has_ended() -> None:
    life = submitted(execution_left=50)
    life.saw(RUNNING, 50)
    end = life.unknown(51)
    assert isinstance(end, End)
    assert isinstance(end.error, JobTimeoutError)


def test_a_running_jobs_supervisor_is_checked_now_and_then() -> None:
    life = submitted()
    life.saw(RUNNING, 10)
    assert isinstance(life.saw(RUNNING, 10 + CHECK_EVERY - 1), Look)
    assert life.saw(RUNNING, 10 + CHECK_EVERY) == CheckSupervisor()
    assert isinstance(life.supervisor(True, 10 + CHECK_EVERY), Look)
    assert isinstance(life.saw(RUNNING, 10 + CHECK_EVERY + 1), Look)


def test_a_job_without_a_supervisor_is_woken_and_then_lost() -> None:
    life = submitted()
    life.saw(RUNNING, 0)
    now = CHECK_EVERY
    steps = []
    while now < CHECK_EVERY + SUSPECT_FOR + WOKEN_FOR + 30:
        step = life.saw(RUNNING, now)
        if isinstance(step, CheckSupervisor):
            step = life.supervisor(False, now)
        steps.append(type(step))
        if isinstance(step, End):
            break
        now += 5
    assert steps.count(Wake) == 1
    assert steps[-1] is End
    assert isinstance(step, End)
    assert isinstance(step.error, JobLostError)
    assert now >= CHECK_EVERY + SUSPECT_FOR + WOKEN_FOR


def test_a_supervisor_that_is_there_after_all_clears_the_doubt() -> None:
    life = submitted()
    life.saw(RUNNING, 0)
    life.supervisor(False, CHECK_EVERY)
    life.supervisor(True, CHECK_EVERY + 5)
    assert isinstance(life.supervisor(False, CHECK_EVERY + SUSPECT_FOR + 10), Look)


def test_looks_are_frequent_for_a_young_job_and_bounded_for_an_old_one() -> None:
    life = submitted(poll_interval=5)
    waits = []
    for now in (0.0, 10.0, 30.0):
        step = life.saw(PENDING, now)
        assert isinstance(step, Look)
        waits.append(step.after)
    assert waits == [0.5, 1.0, 3.0]
    step = life.saw(PENDING, 500)
    assert step == Look(5)


def test_the_runners_deadline_is_the_shorter_one() -> None:
    assert Limits().of_runner is None
    assert Limits(job_timeout=5).of_runner == ("job_timeout", 5)
    assert Limits(execution_timeout=5).of_runner == ("execution_timeout", 5)
    assert Limits(job_timeout=9, execution_timeout=5).of_runner == ("execution_timeout", 5)
