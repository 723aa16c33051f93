"""What the folder must be to travel: standard library only, for Python 3.10, light."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from airflow_provider_raytenant.runner import arguments


def modules(packages):
    return sorted((packages / "raytenant_runner").glob("*.py"))


def test_only_the_standard_library_and_the_syntax_of_python_3_10(packages):
    for path in modules(packages):
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module] if node.level == 0 else []
                assert node.level < 2, path
            else:
                continue
            assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names, path


def test_start_up_is_light(packages, runner_python):
    heavy = [
        "argparse",
        "asyncio",
        "dataclasses",
        "inspect",
        "logging",
        "shutil",
        "subprocess",
        "tempfile",
        "typing",
    ]
    code = f"import sys, raytenant_runner.main; print([name for name in {heavy} if name in sys.modules])"
    # -S: what this virtualenv's site-packages load at start is not the runner's.
    command = [runner_python, "-S", "-c", code]
    output = subprocess.run(
        command, check=False, env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, timeout=30
    )
    assert output.stdout == "[]\n", output.stderr


def test_no_warnings(run):
    job = run("--private-cwd", "--shell", "mkdir a", PYTHONWARNINGS="error")
    assert (job.process.returncode, job.lines) == (0, [])


def test_options():
    options = arguments.parse(
        ["--private-cwd", "--job-timeout", "1.5", "--grace", "0", "--", "a", "--", "--shell"]
    )
    assert (options.private_cwd, options.job_timeout, options.grace) == (True, 1.5, 0.0)
    assert options.result_max_bytes == 65536
    assert options.command == ["a", "--", "--shell"]
    options = arguments.parse(["--shell", "--", "--result-max-bytes", "9"])
    assert (options.command[-1], options.grace, options.job_timeout) == ("--", 10.0, None)
    with pytest.raises(arguments.UsageError, match="either --private-cwd or --copy-cwd"):
        arguments.parse(["--private-cwd", "--copy-cwd", "--shell", ""])
    with pytest.raises(
        arguments.UsageError, match="--result-max-bytes is '-1'; it must be a whole number from 0 to"
    ):
        arguments.parse(["--result-max-bytes", "-1", "--shell", ""])
