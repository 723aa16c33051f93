"""The wheel, in an environment that has nothing else of this repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def airflow(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The ``airflow`` program of an environment with the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv is not None, "uv is missing; `make setup` installs it"
    python = folder / "env" / "bin" / "python"
    pins = ROOT / "requirements" / "dev.txt"
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraint", pins, wheel, cwd=folder)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "PYTHON"))}
    return folder / "env" / "bin" / "airflow", {**kept, "AIRFLOW_HOME": str(folder / "home")}


def test_it_holds_the_package_with_types_and_schema_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"airflow_provider_raytenant", f"{wheel.name.split('-py3')[0]}.dist-info"}
    assert "airflow_provider_raytenant/py.typed" in names
    assert "airflow_provider_raytenant/raytenant.schema.json" in names


def test_airflow_lists_provider_connection_type_links_and_commands(
    airflow: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    program, env = airflow

    def listed(what: str) -> str:
        rows = json.loads(run(program, "providers", what, "--output", "json", cwd=tmp_path, env=env))
        return str([row for row in rows if "raytenant" in str(row)])

    with ThreadPoolExecutor(2) as side_by_side:
        providers, hooks, links = side_by_side.map(listed, ("list", "hooks", "links"))
    assert "airflow-provider-raytenant" in providers
    assert "RayHook" in hooks
    assert "RayJobLink" in links
    commands = run(program, "raytenant", "--help", cwd=tmp_path, env=env)
    for group in ("tenants", "pools", "local"):
        assert group in commands


def test_the_names_for_dag_authors_are_there_and_cost_nothing_heavy(
    airflow: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    program, env = airflow
    code = (
        "import sys\n"
        "from airflow.sdk import DAG, BaseOperator\n"
        "known = set(sys.modules)\n"
        "from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Workers\n"
        "import airflow_provider_raytenant as package\n"
        "assert package.RayTenantJobOperator is RayTenantJobOperator\n"
        "heavy = {'ray', 'boto3', 'aiohttp', 'fastapi'} & (set(sys.modules) - known)\n"
        "print(sorted(heavy))\n"
    )
    assert run(program.with_name("python"), "-c", code, cwd=tmp_path, env=env).strip() == "[]"


def test_neither_trigger_nor_worker_code_imports_ray(
    airflow: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    program, env = airflow
    code = (
        "import sys\n"
        "import airflow_provider_raytenant.triggers.job, airflow_provider_raytenant.operators.prepare\n"
        "print('ray' in sys.modules)\n"
    )
    assert run(program.with_name("python"), "-c", code, cwd=tmp_path, env=env).strip() == "False"
