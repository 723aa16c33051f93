"""`print` and `logging` of a running Python process pass through a mask, in a process of its own."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

HEAD = """
import logging, pickle, sys
from raytenant_runner.masking import Mask
from raytenant_runner.worker_output import MaskedStream, mask_streams
MASK = Mask(["hunter2-of-acme"])
"""


@pytest.fixture
def python(packages: Path, runner_python: str):
    """python(code) runs it after HEAD in a new process; returns its stdout and stderr."""

    def run(code: str) -> tuple[str, str]:
        script = HEAD + textwrap.dedent(code)
        environment = {"PYTHONPATH": str(packages), "PYTHONUTF8": "1"}
        done = subprocess.run(
            [runner_python, "-c", script],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout, done.stderr

    return run


def test_print_and_tracebacks(python):
    out, err = python("""
        mask_streams(MASK)
        print("is", "hunter2-of-acme", "ž", sep="|")
        print("to stderr hunter2-of-acme", file=sys.stderr)
        sys.stdout.writelines(["a hunter2-of-acme\\n", "b\\n"])
        assert sys.stdout.write("hunter2-of-acme\\n") == 16
        raise ValueError("hunter2-of-acme")
    """)
    assert out == "is|***|ž\na ***\nb\n***\n"
    assert err.startswith("to stderr ***\nTraceback ")
    assert err.endswith("ValueError: ***\n")
    assert "hunter2" not in err.replace('raise ValueError("hunter2-of-acme")', "")


def test_log_handlers_made_before_and_after(python):
    out, err = python("""
        before = logging.getLogger("before")
        before.addHandler(logging.StreamHandler(sys.stdout))
        before.propagate = False
        first = sys.stdout
        logging.getLogger("silent").addHandler(logging.NullHandler())
        logging.basicConfig(format="%(message)s")
        file = logging.FileHandler("/dev/null")
        logging.root.addHandler(file)
        mask_streams(MASK)
        before.warning("before hunter2-of-acme")
        logging.warning("root %s", "hunter2-of-acme")
        after = logging.getLogger("after")
        after.addHandler(logging.StreamHandler())
        after.propagate = False
        after.warning("after hunter2-of-acme")
        assert file.stream.name == "/dev/null"
    """)
    assert (out, err) == ("before ***\n", "root ***\nafter ***\n")


def test_the_last_resort_of_logging(python):
    _, err = python("""
        mask_streams(MASK)
        logging.getLogger("no.handlers").warning("hunter2-of-acme")
    """)
    assert err == "***\n"


def test_again_takes_the_new_mask_and_wraps_once(python):
    out, _ = python("""
        mask_streams(MASK)
        stream = sys.stdout
        mask_streams(Mask(["renewed-value"]))
        assert sys.stdout is stream
        print("renewed-value hunter2-of-acme")
    """)
    assert out == "*** hunter2-of-acme\n"


def test_all_else_is_the_streams_own(python):
    out, err = python("""
        plain = sys.stdout
        mask_streams(MASK)
        assert isinstance(sys.stdout, MaskedStream) and isinstance(sys.stderr, MaskedStream)
        assert (sys.stdout.fileno(), sys.stdout.encoding, sys.stdout.isatty()) == (1, "utf-8", False)
        sys.stdout.reconfigure(line_buffering=True)
        assert plain.line_buffering
        sys.stdout.of_my_own = 1
        assert plain.of_my_own == 1
        sys.stdout.buffer.write(b"bytes\\n")
        sys.stdout.flush()
        assert pickle.loads(pickle.dumps(sys.stdout)) is sys.stdout
        assert b"hunter2" not in pickle.dumps(sys.stdout)
        try:
            sys.stdout.write(b"x")
        except TypeError as error:
            print("refused")
        print(hasattr(sys.stdout, "no_such_thing"))
    """)
    assert (out, err) == ("bytes\nrefused\nFalse\n", "")


def test_a_process_without_streams(python):
    out, err = python("""
        kept, sys.stdout, sys.stderr = sys.stdout, None, None
        mask_streams(MASK)
        print(sys.stdout, file=kept)
    """)
    assert (out, err) == ("None\n", "")
