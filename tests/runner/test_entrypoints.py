"""What is run, how it is quoted, and how its end is passed on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.outcome import outcome_of
from airflow_provider_raytenant.domain.status import JobStatus

SHOW = "import json,sys; print(json.dumps(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("script", "lines", "code"),
    [
        ("true", [], 0),
        ("", [], 0),
        ("exit 3", [], 3),
        ("echo $WORD; echo \"$WORD\"; echo '$WORD'", ["one two", "one  two", "$WORD"], 0),
        ("echo $(echo hi) `echo ho`", ["hi ho"], 0),
        ("printf '%s|' 'it'\\''s' \"a \\\"b\\\"\"; exit 255", ['it\'s|a "b"|'], 255),
        ("for i in 1 2; do\n  echo $i\ndone\n# the end\nexit 4\n", ["1", "2"], 4),
        ("cat <<EOF\n  kept  as it is\n\nEOF", ["  kept  as it is", ""], 0),
        ("echo 'žluťoučký 🐎'", ["žluťoučký 🐎"], 0),
        ("echo a; echo b >&2; echo c", ["a", "b", "c"], 0),
        ("printf unfinished", ["unfinished"], 0),
        ("echo x\\\\y", ["x\\y"], 0),
        ("kill -9 $$ & wait; exit 1", [], -9),
    ],
)
def test_a_string_goes_verbatim_to_the_shell(run, script, lines, code):
    job = run("--shell", script, WORD="one  two")
    assert job.process.returncode == code
    assert job.lines == lines


def test_shell_with_directory_pipe_and_exit_code(run, tmp_path):
    (tmp_path / "0" / "work" / "a").mkdir(parents=True)
    (tmp_path / "0" / "work" / "a" / "x.py").write_text(SHOW)
    job = run("--shell", 'cd a && python x.py "b c" | tee y; cat y; exit 3')
    assert job.process.returncode == 3
    assert job.lines == ['["b c"]', '["b c"]']


def test_a_string_that_begins_with_a_dash_is_a_command(run):
    job = run("--shell", "-x foo")
    assert job.process.returncode == 127
    assert "-x: not found" in job.lines[0]


def test_a_list_is_executed_as_it_is(run, runner_python):
    words = [
        "a b",
        "$HOME",
        "*",
        "",
        "it's",
        '"',
        "`x`",
        "--",
        "--shell",
        "line\nline",
        "ž🐎",
        "\\",
        ";exit 9",
    ]
    job = run("--", runner_python, "-c", SHOW, *words)
    assert job.process.returncode == 0
    assert json.loads(job.lines[0]) == words


@pytest.mark.parametrize("code", [0, 1, 2, 65, 124, 255])
def test_exit_codes_pass(run, code):
    job = run("--", "sh", "-c", f"exit {code}")
    assert job.process.returncode == code
    record = job.record
    assert isinstance(record.pop("seconds"), float)
    assert record == {"v": 1, "outcome": "exited", "exit_code": code, "signal": None}


def test_the_record_says_how_long_the_entrypoint_ran_and_the_provider_reads_it(run):
    job = run("--shell", "sleep 0.2")
    assert job.record["seconds"] >= 0.2
    ended = JobInfo("j", JobStatus.SUCCEEDED, exit_code=0)
    assert outcome_of(ended, job.record).usage == {"run_seconds": job.record["seconds"]}


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGPIPE]
)
def test_death_by_signal_passes(run, number):
    job = run("--", "sh", "-c", f"kill -{int(number)} $$")
    assert job.process.returncode == -number
    record = job.record
    assert (record["outcome"], record["exit_code"], record["signal"]) == ("signaled", None, number)


def test_a_closed_pipe_kills_as_it_does_without_a_runner(run):
    job = run("--shell", "yes | head -n 1")
    assert (job.process.returncode, job.lines) == (0, ["y"])


@pytest.mark.parametrize(
    ("content", "mode", "code", "message"),
    [
        (None, 0, 127, "raytenant: program not found: './prog'"),
        ("#!/bin/sh\n", 0o644, 126, "raytenant: cannot execute './prog': Permission denied"),
        ("echo hi\n", 0o755, 126, "raytenant: cannot execute './prog': exec format error; a script needs"),
        (
            "#!/no/such\n",
            0o755,
            127,
            "raytenant: cannot execute './prog': the file is there, but not the interp",
        ),
    ],
)
def test_what_cannot_be_started(run, tmp_path, content, mode, code, message):
    (tmp_path / "0" / "work").mkdir(parents=True)
    if content is not None:
        program = tmp_path / "0" / "work" / "prog"
        program.write_text(content)
        program.chmod(mode)
    job = run("--", "./prog")
    assert job.process.returncode == code
    [line] = job.lines
    assert line.startswith(message)
    assert (job.record["outcome"], job.record["exit_code"]) == ("not_started", code)


def test_a_program_is_looked_up_in_path(run):
    job = run("--", "no-such-program-here")
    assert job.process.returncode == 127
    assert job.lines == ["raytenant: program not found in PATH: 'no-such-program-here'"]
    assert run("--", "").process.returncode == 127
    assert run("--", "/").process.returncode == 126


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--"],
        ["--shell"],
        ["--shell", "true", "--", "true"],
        ["--nonsense", "--shell", "true"],
        ["--grace", "nan", "--shell", "true"],
        ["--grace", "-1", "--shell", "true"],
        ["--job-timeout", "0", "--shell", "true"],
        ["--job-timeout", "soon", "--shell", "true"],
        ["--result-max-bytes", "1e3", "--shell", "true"],
        ["--result-max-bytes", "99999999", "--shell", "true"],
    ],
)
def test_wrong_arguments(run, arguments):
    job = run(*arguments)
    assert job.process.returncode == 2
    [line] = job.lines
    assert line.startswith("raytenant: ")
    assert job.record["outcome"] == "not_started"


def test_the_environment_is_the_jobs_own(run, runner_python):
    show = "import json,os; print(json.dumps(dict(os.environ)))"
    job = run("--", runner_python, "-c", show, LC_ALL="C.UTF-8", ODD="a=b\nc")
    seen = json.loads(job.lines[0])
    assert seen.pop("RAYTENANT_RESULT_PATH").startswith(str(job.temporary))
    expected = {**os.environ, "LC_ALL": "C.UTF-8", "ODD": "a=b\nc", "TMPDIR": str(job.temporary)}
    expected["PYTHONPATH"] = seen["PYTHONPATH"]
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):  # Ray's shell sets these
        seen.pop(name, None)
        expected.pop(name, None)
    assert seen == expected
    assert seen["PYTHONPATH"].startswith(f"{job.work}:")


def test_only_the_standard_files_are_open_in_the_job(run):
    job = run("--", "sh", "-c", "ls /proc/$$/fd")
    assert set(job.lines) <= {"0", "1", "2", "10"}


def test_private_cwd_is_empty_private_and_removed(run):
    script = "pwd; echo $PWD; ls -A; stat -c %a .; mkdir -p a/b; touch a/b/c; chmod 500 a/b a; ln -s /tmp l"
    job = run("--private-cwd", "--shell", script)
    cwd, pwd, mode = job.lines
    assert (cwd, mode) == (pwd, "700")
    assert Path(cwd).parent == job.temporary
    assert list(job.temporary.iterdir()) == []


def test_without_private_cwd_the_directory_stays(run):
    job = run("--shell", "pwd")
    assert job.lines == [str(job.work)]
    assert list(job.temporary.iterdir()) == []


def test_directories_elsewhere_where_tmpdir_is_wrong(run):
    job = run("--private-cwd", "--shell", "pwd", TMPDIR="/no/such/place")
    assert job.lines[0].startswith("/tmp/raytenant-cwd-")
    assert not Path(job.lines[0]).exists()


SHADOWS = [
    "json",
    "signal",
    "select",
    "math",
    "binascii",
    "shutil",
    "resource",
    "errno",
    "subprocess",
]


def test_a_jobs_own_modules_do_not_shadow_the_standard_library(run, tmp_path, runner_python):
    work = tmp_path / "0" / "work"  # both the current directory and first on PYTHONPATH
    work.mkdir(parents=True)
    for name in SHADOWS:
        (work / f"{name}.py").write_text(f"raise SystemExit('shadowed {name}')")
    # The job still finds its own module first; the runner gets as far as `resource` and `shutil`.
    leave = "mkdir $TMPDIR/left; touch $RAYTENANT_RESULT_PATH.other"
    script = f"{leave}; {runner_python} -c 'import json'; kill -TERM $$"
    job = run("--shell", script)
    assert job.lines == ["shadowed json"]
    assert job.process.returncode == -signal.SIGTERM
    assert [path.name for path in job.temporary.iterdir()] == ["left"]
