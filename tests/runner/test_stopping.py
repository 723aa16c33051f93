"""Signals to the runner, and the end of a job whose time is over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from airflow_provider_raytenant.runner.process_tree import ProcessTree

# Counts SIGTERMs; the second breaks into a clean-up, as it would in any Python program.
CLEANS_UP = """
import os, signal, sys, time
def stop(number, frame):
    print("got", number, flush=True)
    raise SystemExit(7)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
try:
    while True:
        signal.pause()
finally:
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        time.sleep(0.05)
    print("cleaned", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_runner_alone_is_forwarded(start, number):
    job = start("--shell", f"trap 'echo got; exit 5' {int(number)}; echo ready; while :; do sleep 0.05; done")
    job.wait_for_line("ready")
    os.kill(job.process.pid, number)
    assert job.wait() == 5
    assert job.lines == ["ready", "got"]
    assert job.record["exit_code"] == 5


def test_an_untrapped_signal_ends_both(start):
    job = start("--shell", "echo ready; exec sleep 100")
    job.wait_for_line("ready")
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.wait() == -signal.SIGTERM
    assert (job.record["outcome"], job.record["signal"]) == ("signaled", signal.SIGTERM)
    assert list(job.temporary.iterdir()) == []


def test_a_child_that_ignores_the_signal_goes_on(start, until):
    job = start("--shell", "trap '' TERM; echo ready; until test -e go; do sleep 0.05; done; exit 6")
    job.wait_for_line("ready")
    for _ in range(2):
        os.kill(job.process.pid, signal.SIGTERM)
    (job.work / "go").touch()
    assert job.wait() == 6


@pytest.mark.parametrize("runner_first", [True, False])
def test_a_stop_of_the_whole_tree_reaches_the_child_once(start, runner_python, until, runner_first):
    job = start("--", runner_python, "-c", CLEANS_UP)
    job.wait_for_line("ready")
    until(lambda: len(_children(job.process.pid)) == 2, "child and witness")
    tree = _children(job.process.pid)
    if runner_first:  # the order of Ray's supervisor
        os.kill(job.process.pid, signal.SIGTERM)
    for pid in tree:
        os.kill(pid, signal.SIGTERM)
    if not runner_first:  # late enough for a second signal to do harm
        job.wait_for_line("got 15")
        os.kill(job.process.pid, signal.SIGTERM)
    assert job.wait() == 7
    assert job.lines == ["ready", "got 15", "cleaned"]


def test_a_kill_of_the_runner_alone_reaches_the_child_once(start, runner_python):
    job = start("--", runner_python, "-c", CLEANS_UP)
    job.wait_for_line("ready")
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.wait() == 7
    assert job.lines == ["ready", "got 15", "cleaned"]


def test_a_second_signal_is_judged_anew(start, until):
    job = start("--shell", "trap 'echo got' TERM; echo ready; until test -e go; do sleep 0.02; done; exit 3")
    job.wait_for_line("ready")
    until(lambda: len(_children(job.process.pid)) == 2, "child and witness")
    first = _children(job.process.pid)
    for pid in (job.process.pid, *first):
        os.kill(pid, signal.SIGTERM)
    job.wait_for_line("got")
    until(lambda: max(_children(job.process.pid)) > max(first), "a new witness")
    os.kill(job.process.pid, signal.SIGTERM)
    until(lambda: job.text.count("got\n") == 2, "a second signal in the child")
    (job.work / "go").touch()
    assert job.wait() == 3


def test_the_group_dies_with_rays_watcher(start, alive, until):
    job = start("--shell", "sleep 100 & echo $! $$ > pids; wait")
    pids = [*job.pids("pids"), *_children(job.process.pid)]
    os.killpg(job.process.pid, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    until(lambda: not any(alive(pid) for pid in pids), "the end of the whole group")


def test_the_witness_does_not_outlive_a_killed_runner(start, alive, until):
    job = start("--shell", "echo $$ > pids; exec sleep 100")
    [child] = job.pids("pids")
    until(lambda: len(_children(job.process.pid)) == 2, "the witness")
    [witness] = set(_children(job.process.pid)) - {child}
    os.kill(job.process.pid, signal.SIGKILL)
    until(lambda: not alive(witness), "the end of the witness")
    assert alive(child)


# The first line's `sleep` dies by SIGTERM, which leaves its child in another session to process 1.
STUBBORN = """
(setsid sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1; done' & exec sleep 100) &
echo $! >> pids
trap '' TERM
sh -c 'trap "" TERM; echo $$ >> pids; (trap "" TERM; while :; do sleep 1; done) & echo $! >> pids; wait' &
setsid sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1; done' &
echo $$ >> pids
while :; do sleep 1; done
"""


def test_timeout_kills_what_ignores_sigterm(start, alive):
    job = start("--job-timeout", "1.5", "--grace", "0.5", "--shell", STUBBORN)
    assert job.wait() == 124
    pids = [int(word) for word in (job.work / "pids").read_text().split()]
    assert len(pids) == 6
    assert not [pid for pid in pids if alive(pid)]
    own = [line for line in job.lines if line.startswith("raytenant")]
    assert own == ["raytenant: the job ran longer than its time-out of 1.5 s; stopping all its processes"]
    record = job.record
    assert (record["outcome"], record["exit_code"], record["signal"]) == ("job_timeout", 124, None)
    assert 1.9 < record["seconds"] < 10
    assert list(job.temporary.iterdir()) == []


def test_timeout_lets_a_child_clean_up(start):
    script = "trap 'sleep 0.3; echo cleaned; exit 0' TERM; while :; do sleep 0.05; done"
    job = start("--job-timeout", "0.5", "--shell", f'echo 1 > "$RAYTENANT_RESULT_PATH"; {script}')
    assert job.wait() == 124
    assert job.lines[-1] == "cleaned"
    assert "result" not in job.record
    assert job.record["seconds"] < 9


def test_no_timeout_when_it_ends_in_time(run):
    job = run("--job-timeout", "20", "--shell", "exit 3")
    assert job.process.returncode == 3
    assert job.record["seconds"] < 10


def test_what_the_job_leaves_behind_does_not_hold_it(run):
    job = run("--shell", "sleep 100 & exit 0")
    assert job.process.returncode == 0


def test_a_stranger_in_a_group_that_the_runner_does_not_lead_is_no_family():
    parent = os.getppid()
    assert parent not in ProcessTree(os.getpid()).living()


def test_without_proc_the_tree_is_the_child(start):
    job = start("--shell", "exec sleep 100")
    tree = ProcessTree(job.process.pid, proc="/no/such/proc")
    assert tree.living() == {job.process.pid}
    tree.send(signal.SIGKILL, tree.living())
    assert job.wait() == -signal.SIGKILL
    assert tree.living() == set()


def _children(parent: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
