"""Real entrypoints whose output passes through a mask, and what stays as it is without one."""

from __future__ import annotations

import os
import random
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_raytenant.runner import console, masked_output
from airflow_provider_raytenant.runner.child import NotStarted
from airflow_provider_raytenant.runner.masking import Mask
from airflow_provider_raytenant.runner.supervise import supervise

from .conftest import PYTHON, Run, Start
from .test_entrypoints import (  # noqa: F401  these hold with a mask too
    test_a_closed_pipe_kills_as_it_does_without_a_runner,
    test_a_list_is_executed_as_it_is,
    test_a_string_goes_verbatim_to_the_shell,
    test_death_by_signal_passes,
    test_exit_codes_pass,
    test_only_the_standard_files_are_open_in_the_job,
    test_what_cannot_be_started,
)
from .test_stopping import (  # noqa: F401
    test_a_kill_of_the_runner_alone_reaches_the_child_once,
    test_a_signal_to_the_runner_alone_is_forwarded,
    test_a_stop_of_the_whole_tree_reaches_the_child_once,
    test_an_untrapped_signal_ends_both,
    test_timeout_kills_what_ignores_sigterm,
    test_timeout_lets_a_child_clean_up,
    test_what_the_job_leaves_behind_does_not_hold_it,
)

SECRET = "hunter2-of-acme"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----"

# The runner with a mask, however its main learns of one.
DRIVER = f"""
import sys
from raytenant_runner import main
from raytenant_runner.masking import Mask
from raytenant_runner.supervise import supervise
MASK = Mask([{SECRET!r}, {KEY!r}])
def masked(command, environment, signals, job_timeout, grace, *rest, **named):
    return supervise(command, environment, signals, job_timeout, grace, mask=MASK)
main.supervise = masked
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.fixture
def start(packages: Path, tmp_path: Path) -> Iterator[Start]:
    """As the room's `start`, with a mask."""
    runs: list[Run] = []
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)

    def _start(*arguments: str, **environment: str) -> Run:
        folder = tmp_path / str(len(runs))
        folder.mkdir(exist_ok=True)
        command = f"exec {shlex.join([PYTHON, str(driver), *arguments])}"
        runs.append(Run(packages, folder, command, {"SECRET": SECRET, "KEY": KEY, **environment}))
        return runs[-1]

    yield _start
    for run in runs:
        run.kill()


def log_of(job: Run) -> bytes:
    """All that the job wrote, without its record."""
    text, _, _ = job.log_path.read_bytes().rpartition(b"\n::raytenant-end:: 1/1 ")
    assert text.count(b"::raytenant-end::") == 0
    return text


def test_both_streams_are_masked_in_their_order(run):
    job = run("--shell", 'for i in 1 2 3; do echo "out $i $SECRET"; echo "err $i $SECRET" >&2; done')
    assert job.process.returncode == 0
    assert log_of(job) == b"".join(b"out %d ***\nerr %d ***\n" % (i, i) for i in (1, 2, 3))


def test_values_that_come_in_pieces(run, runner_python):
    code = """
import os
for byte in os.environb[b"SECRET"] + b"\\n" + os.environb[b"KEY"]:
    os.write(1, bytes([byte]))
"""
    job = run("--", runner_python, "-c", code)
    assert log_of(job) == b"***\n***"


# Writes the first part of the secret, waits for a file `go`, writes the rest.
TWO_PARTS = """
import os, pathlib, sys, time
place, before = int(sys.argv[1]), sys.argv[2].encode()
secret = os.environb[b"SECRET"]
os.write(1, before + secret[:place])
while not pathlib.Path("go").exists():
    time.sleep(0.02)
os.write(1, secret[place:] + b" after")
"""


def test_a_value_cut_by_a_long_pause_is_hidden(start, runner_python):
    job = start("--", runner_python, "-c", TWO_PARTS, "9", "before ")
    job.wait_for_line("before ")
    # What is held for a moment only is let go in another job that started later.
    other = start("--", runner_python, "-c", TWO_PARTS, "3", "before ")
    other.wait_for_line("before hun")
    assert job.text == "before "
    for each in (job, other):
        (each.work / "go").touch()
        assert each.wait() == 0
    assert log_of(job) == b"before *** after"
    assert log_of(other) == b"before hun*** after"


def test_a_prompt_appears_before_its_answer(start, runner_python):
    job = start("--", runner_python, "-c", TWO_PARTS, "0", "Your path: h")
    job.wait_for_line("Your path: h")
    (job.work / "go").touch()
    assert job.wait() == 0
    assert log_of(job) == b"Your path: h*** after"


def test_the_last_bytes_are_not_lost_when_a_value_might_begin(run):
    job = run("--shell", 'printf "%.12s" "$SECRET"')
    assert log_of(job) == b"hunter2-of-a"


def test_what_the_runner_says_is_masked(run):
    job = run("--", f"./{SECRET}")
    assert job.process.returncode == 127
    assert job.lines == ["raytenant: program not found: './***'"]


def test_much_output_and_binary(run, runner_python):
    code = """
import os, random
data = random.Random(1).randbytes(1 << 20)
secret = os.environb[b"SECRET"]
for _ in range(24):
    view = memoryview(data + secret)
    while view:
        view = view[os.write(1, view):]
"""
    job = run("--", runner_python, "-c", code)
    assert job.process.returncode == 0
    assert log_of(job) == (random.Random(1).randbytes(1 << 20) + b"***") * 24


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
def test_the_end_comes_after_all_output(run, end):
    script = f'i=0; while test $i -lt 3000; do echo "$i $SECRET"; i=$((i+1)); done; {end}'
    job = run("--shell", script)
    assert job.process.returncode == (3 if "exit" in end else -signal.SIGKILL)
    assert log_of(job) == b"".join(b"%d ***\n" % i for i in range(3000))


def test_a_child_that_closes_its_output_goes_on(run):
    job = run("--shell", 'echo "$SECRET"; exec 1>&- 2>&-; sleep 0.3; exit 4')
    assert job.process.returncode == 4
    assert log_of(job) == b"***\n"
    assert job.record["seconds"] >= 0.3


def test_what_is_left_behind_and_writes_soon_is_waited_for(run):
    job = run("--shell", '(until test -e go; do sleep 0.02; done; echo "late $SECRET") & touch go')
    assert job.process.returncode == 0
    assert log_of(job) == b"late ***\n"


def test_a_daemon_that_goes_on_writing_does_not_hold_the_end(run, alive, until):
    daemon = "echo $$ > pids; while echo noise; do :; done"
    job = run("--shell", f"setsid sh -c '{daemon}' & until test -s pids; do :; done; echo \"last $SECRET\"")
    assert job.process.returncode == 0
    assert b"last ***\n" in log_of(job)
    [pid] = job.pids("pids")
    until(lambda: not alive(pid), "its end by SIGPIPE")


def test_the_group_dies_with_rays_watcher_while_it_writes(start, alive, until):
    job = start("--shell", "echo $$ > pids; while echo noise; do :; done")
    pids = job.pids("pids")
    os.killpg(job.process.pid, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    until(lambda: not any(alive(pid) for pid in pids), "the end of the whole group")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_does_not_hold_the_job(packages, tmp_path):
    # More than a pipe takes that nobody reads.
    (tmp_path / "driver.py").write_text(DRIVER)
    script = "head -c 1000000 /dev/zero; touch done; exit 5"
    words = shlex.join([PYTHON, str(tmp_path / "driver.py"), "--shell", script])
    job = Run(packages, tmp_path, f"exec {words} > /dev/full", {})
    assert job.wait() == 5
    assert (job.work / "done").exists()


def test_a_log_that_takes_long_loses_nothing(packages, tmp_path, until):
    # Small pieces, and no time at all for what is left behind: only what the entrypoint wrote is still read.
    hurried = """
from raytenant_runner import masked_output
masked_output._LONGEST_DRAIN_SECONDS, masked_output._PIECE_BYTES = 0.0, 4096
"""
    (tmp_path / "driver.py").write_text(hurried + DRIVER)
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    # It fits the two pipes, 64 KiB each on Linux, so the entrypoint ends while the second one is full.
    script = "sleep 100 & head -c 130000 /dev/zero; touch done"
    words = shlex.join([PYTHON, str(tmp_path / "driver.py"), "--shell", script])
    job = Run(packages, tmp_path, f"exec {words} > {tmp_path / 'log'}", {})
    until((job.work / "done").exists, "the end of the entrypoint")
    os.set_blocking(reader, True)
    with os.fdopen(reader, "rb") as log:
        output = log.read()
    assert job.wait() == 0
    job.kill()
    assert output.startswith(bytes(130000) + b"\n::raytenant-end:: 1/1 ")


def test_a_mask_without_values_leaves_the_descriptors(packages, tmp_path):
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER.replace(f"[{SECRET!r}, {KEY!r}]", '["abcd"]'))
    show = "readlink /proc/$$/fd/1 /proc/$$/fd/2; ls /proc/$PPID/task | wc -l"
    job = Run(packages, tmp_path, f"exec {shlex.join([PYTHON, str(driver), '--shell', show])}", {})
    assert job.wait() == 0
    assert job.lines == [str(job.log_path), str(job.log_path), "1"]


def test_nothing_starts_where_the_output_cannot_be_masked(monkeypatch):
    class NoPipe:
        def __init__(self, mask: Mask) -> None:
            raise OSError("Too many open files")

    class NoSignals:
        def wait(self, seconds: float | None) -> list[int]:
            return []

    monkeypatch.setattr(masked_output, "MaskedOutput", NoPipe)
    monkeypatch.setattr(console, "_hidden", [])
    with pytest.raises(NotStarted, match="cannot mask the output: Too many open files") as refused:
        supervise(["/no/such/program"], {}, NoSignals(), None, 1.0, Mask([SECRET]))
    assert refused.value.exit_code == 126
