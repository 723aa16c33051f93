"""A driver's own copy of a working directory that Ray gives to several jobs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
import helper
print(os.getcwd(), os.environ["PWD"], os.path.dirname(helper.__file__), sep="\\n")
print(open("data/colour.txt").read(), os.access("run.sh", os.X_OK), os.readlink("link"))
for name in ("new.txt", "data/colour.txt", "helper.py"):
    with open(name, "w") as file:
        file.write("written by the job")
os.remove("run.sh")
"""


@pytest.fixture
def code(start):
    """A runner that is not used, for its folder: what the next one of the test will start in."""
    job = start("--shell", "true")
    job.wait()
    folder = job.work.parent.parent / "1" / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "colour.txt").write_text("red")
    (folder / "helper.py").write_text("")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "run.sh").write_text("true")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("data/colour.txt")
    return folder


def _content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_job_has_its_code_and_may_do_with_it_what_it_likes(run, code, runner_python):
    before = _content(code)
    job = run("--copy-cwd", "--", runner_python, "program.py")
    assert job.process.returncode == 0, job.text
    cwd, pwd, modules, seen = job.lines
    assert cwd == pwd == modules
    assert Path(cwd).parent == job.temporary
    assert seen == "red True data/colour.txt"
    # What the job wrote is gone with its copy.
    assert _content(code) == before
    assert list(job.temporary.iterdir()) == []


def test_the_copy_is_private_and_python_finds_modules_in_it_alone(run, code):
    code.chmod(0o755)
    job = run("--copy-cwd", "--shell", "stat -c %a .; echo $PYTHONPATH; pwd", also_path=f"{code}/data")
    mode, path, cwd = job.lines
    assert mode == "700"
    first, packages, last = path.split(":")
    assert (first, last) == (cwd, f"{cwd}/data")
    assert packages != str(code)


def test_a_folder_that_cannot_be_copied_starts_nothing(run, code):
    os.mkfifo(code / "pipe")
    job = run("--copy-cwd", "--shell", "echo started", RAYTENANT_PROBE="1")
    assert job.process.returncode == 126
    assert job.lines == [
        f"raytenant: cannot make a private directory: cannot copy {code}: `{code}/pipe` is a named pipe"
    ]


def test_what_is_read_only_is_copied_and_removed_too(run, code):
    (code / "data").chmod(stat.S_IRUSR | stat.S_IXUSR)
    job = run("--copy-cwd", "--shell", "cat data/colour.txt; echo")
    (code / "data").chmod(0o755)
    assert job.lines == ["red"]
    assert list(job.temporary.iterdir()) == []
