"""What `execute` makes of rendered arguments: the request, its packages, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk._shared.secrets_masker import _secrets_masker

from airflow_provider_raytenant.exceptions import (
    PolicyError,
    RayAuthError,
    RayUnavailableError,
    RequestError,
    TerminalError,
    TinyRequestWarning,
)
from airflow_provider_raytenant.operators import environment as environment_module
from airflow_provider_raytenant.operators import prepare as module
from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Workers
from airflow_provider_raytenant.operators.prepare import Prepared, prepare
from airflow_provider_raytenant.ray_api.packages import runner_package
from airflow_provider_raytenant.ray_api.tickets import ticket_package

pytestmark = pytest.mark.usefixtures("no_cluster")


@dataclass
class FakeTask:
    """What of a task instance the operator reads."""

    id: str = "0197aaaa-0000-7000-8000-000000000001"
    dag_id: str = "dag"
    run_id: str = "run"
    task_id: str = "t"
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 2
    bundle_instance: Any = None
    xcoms: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


def run_of(team: str | None) -> Any:
    return SimpleNamespace(team_name=team, clear_number=0)


def of_bundle(name: str | None) -> FakeTask:
    return FakeTask(bundle_instance=SimpleNamespace(name=name, path=None))


def made(
    tmp_path: Path | None = None, task: FakeTask | None = None, run: Any = None, **kwargs: Any
) -> Prepared:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        operator = RayTenantJobOperator(**{"task_id": "t", "tenant": "acme", "entrypoint": "true", **kwargs})
    if tmp_path is not None:
        dag.fileloc = str(tmp_path / "dag.py")
    return prepare(operator, {"ti": task or FakeTask(), "dag_run": run})  # type: ignore[typeddict-item]


def folder(path: Path) -> Path:
    path.mkdir()
    (path / "job.py").write_text("print(1)")
    return path


def test_the_request_carries_footprint_identity_and_environment() -> None:
    request = made(
        memory="1GiB",
        num_gpus=0,
        resources={"fpga": 1},
        label_selector={"zone": "in(a,b)"},
        workers=Workers(count=2, num_cpus=1),
        metadata={"owner": "ann"},
        env_vars={"MODEL": "ridge"},
        pip=["numpy==2.0.0"],
        job_timeout=60,
    ).request
    assert request["entrypoint_num_cpus"] == 1
    assert request["entrypoint_memory"] == 1024**3
    assert request["entrypoint_resources"] == {"fpga": 1}
    assert request["entrypoint_label_selector"] == {"zone": "in(a,b)"}
    assert "entrypoint_num_gpus" not in request
    assert request["metadata"]["owner"] == "ann"
    assert request["metadata"]["raytenant.slots"] == "3"
    assert request["metadata"]["raytenant.pool"] == "ray.acme"
    env = request["runtime_env"]
    assert env["pip"] == ["# raytenant: for test/acme alone", "pandas==2.2.3", "numpy==2.0.0"]
    assert env["env_vars"]["REGION"] == "eu"
    assert env["env_vars"]["MODEL"] == "ridge"
    assert env["env_vars"]["RAYTENANT_STORAGE"] == "s3://lake/tenants/acme"
    assert "--job-timeout 60" in request["entrypoint"]
    assert "--private-cwd" in request["entrypoint"]


def test_a_folder_beside_the_dag_becomes_a_package_of_this_tenant(
    tmp_path: Path, no_cluster: list[Any]
) -> None:
    folder(tmp_path / "code")
    acme = made(tmp_path, working_dir="code").request
    globex = made(tmp_path, working_dir="code", tenant="globex").request
    uri = acme["runtime_env"]["working_dir"]
    assert uri.startswith("gcs://_ray_pkg_")
    assert uri != globex["runtime_env"]["working_dir"]
    assert "--private-cwd" not in acme["entrypoint"]
    assert uri in [package.uri for package in no_cluster[0][-1]]


def test_modules_and_the_runner_are_packages_too(tmp_path: Path, no_cluster: list[Any]) -> None:
    folder(tmp_path / "kit")
    archive = "s3://lake/tenants/acme/lib/x.whl"
    request = made(tmp_path, py_modules=["kit", archive]).request
    modules = request["runtime_env"]["py_modules"]
    runner = runner_package("acme").uri
    assert (modules[0], modules[2]) == (runner, archive)
    assert set(modules[:2]) == {package.uri for package in no_cluster[0][-1]}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"working_dir": "/etc"}, PolicyError, ["working_dir: found '/etc'", "folders below"]),
        ({"working_dir": "../elsewhere"}, PolicyError, ["'../elsewhere'"]),
        ({"py_modules": ["/etc"]}, PolicyError, ["py_modules[0]: found '/etc'"]),
        ({"runtime_env": {"java_jars": ["s3://lake/tenants/globex/x.jar"]}}, RequestError, ["java_jars"]),
        ({"runtime_env": {"excludes": "*.csv"}}, RequestError, ["excludes: found '*.csv'"]),
        ({"runtime_env": "x"}, RequestError, ["runtime_env: found 'x'"]),
        ({"pip": ["--index-url=https://u:hunter2@h/simple"]}, PolicyError, ["a URL with a password"]),
        ({"working_dir": "nowhere"}, RequestError, ["working_dir: found no folder"]),
        ({"py_modules": ["nowhere"]}, RequestError, ["py_modules[0]: found no folder"]),
        ({"working_dir": "x" * 300}, RequestError, ["working_dir: found 'xxx", "(File name too long)"]),
        ({"working_dir": "a\0b"}, RequestError, ["working_dir: found the character '\\x00'"]),
        ({"entrypoint": ["a", "\ud800"]}, RequestError, ["entrypoint[1]: found the character '\\ud800'"]),
        ({"metadata": {"\ud800": "x"}}, RequestError, ["metadata, a key: found the character"]),
        ({"py_modules": "kit"}, RequestError, ["py_modules: found 'kit'"]),
        ({"working_dir": "s3://lake/tenants/globex/x.zip"}, PolicyError, ["below s3://lake/tenants/acme"]),
        ({"working_dir": "s3://lake/tenants/acmes/x.zip"}, PolicyError, ["below s3://lake/tenants/acme"]),
        ({"working_dir": "s3://lake/tenants/acme/../globex/x.zip"}, RequestError, ["'..'"]),
        (
            {"working_dir": "s3://lake/tenants/acme/%2e%2e/globex/x.zip"},
            RequestError,
            ["such as %"],
        ),
        ({"py_modules": ["s3://lake/tenants/globex/x.whl"]}, PolicyError, ["py_modules[0]"]),
        ({"runtime_env": {"working_dir": "s3://other/x.zip"}}, PolicyError, ["working_dir"]),
        ({"working_dir": "https://example.org/x.zip"}, RequestError, ["working_dir"]),
        ({"working_dir": "gcs://_ray_pkg_of_another.zip"}, RequestError, ["working_dir"]),
        ({"working_dir": "s3://lake/tenants/acme/x.txt"}, RequestError, [".zip"]),
        ({"runtime_env": {"pips": []}}, RequestError, ["pips: found an unknown key"]),
        ({"runtime_env": {"conda": "x"}}, RequestError, ["conda", "pip"]),
        ({"runtime_env": {"env_vars": {}}, "env_vars": {}}, RequestError, ["env_vars: found both"]),
        ({"env_vars": {"X": 1}}, RequestError, ["env_vars.X: found 1"]),
        ({"env_vars": {"RAYTENANT_TENANT": "globex"}}, RequestError, ["reserved"]),
        ({"metadata": {"raytenant.tenant": "globex"}}, RequestError, ["reserved"]),
        ({"metadata": {"n": 1}}, RequestError, ["metadata['n']: found 1"]),
        ({"entrypoint": ""}, RequestError, ["entrypoint: found ''"]),
        ({"entrypoint": []}, RequestError, ["entrypoint: found []"]),
        ({"entrypoint": ["python", 1]}, RequestError, ["entrypoint"]),
    ],
)
def test_a_wrong_rendered_argument_is_refused_before_the_cluster_hears_of_it(
    arguments: dict[str, Any],
    error: type[TerminalError],
    words: list[str],
    tmp_path: Path,
    no_cluster: list[Any],
) -> None:
    with pytest.raises(error) as caught:
        made(tmp_path, **arguments)
    for word in words:
        assert word in str(caught.value)
    assert no_cluster == []


def test_only_dags_of_the_tenants_bundles_and_teams_may_use_it(no_cluster: list[Any]) -> None:
    for task, run, rule in (
        (of_bundle("other"), run_of("ruled"), "bundles"),
        (FakeTask(), run_of("ruled"), "bundles"),
        (of_bundle("ruled-dags"), run_of("other"), "teams"),
        (of_bundle("ruled-dags"), run_of(None), "teams"),
        (of_bundle("ruled-dags"), None, "teams"),
    ):
        with pytest.raises(PolicyError) as caught:
            made(task=task, run=run, tenant="ruled")
        assert caught.value.details["rule"] == rule
    assert no_cluster == []
    assert made(task=of_bundle("ruled-dags"), run=run_of("ruled"), tenant="ruled").submission_id


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"pip": ["--index-url=https://evil.example.com/simple"]}, "pip_index"),
        ({"pip": {"packages": [], "pip_install_options": ["-i", "https://evil.example.com"]}}, "pip_index"),
        ({"runtime_env": {"uv": ["a @ https://evil.example.com/a.whl"]}, "tenant": "globex"}, "pip_index"),
        ({"runtime_env": {"pip": ["-r /etc/passwd"]}}, "pip_index"),
        ({"env_vars": {"AWS_ACCESS_KEY_ID": "x"}}, "env_vars"),
        ({"runtime_env": {"env_vars": {"LD_PRELOAD": "x"}}}, "env_vars"),
        ({"runtime_env": {"image_uri": "x"}}, "image_uri"),
        ({"runtime_env": {"conda": "x"}}, "runtime_env"),
        ({"runtime_env": {"py_executable": "x"}}, "runtime_env"),
    ],
)
def test_a_breach_of_the_tenants_rules_names_the_rule_and_nothing_reaches_the_cluster(
    arguments: dict[str, Any], rule: str, no_cluster: list[Any]
) -> None:
    with pytest.raises(PolicyError) as caught:
        made(**arguments)
    assert caught.value.details["rule"] == rule
    assert no_cluster == []


def test_links_that_go_round_are_one_clear_error(tmp_path: Path, no_cluster: list[Any]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RequestError, match="working_dir: found"):
        made(tmp_path, working_dir="loop/x")
    assert no_cluster == []


def test_a_value_that_airflow_knows_as_a_secret_is_refused_and_not_shown(no_cluster: list[Any]) -> None:
    _secrets_masker().add_mask("hunter2-and-more")
    with pytest.raises(PolicyError) as caught:
        made(env_vars={"DB": "postgres://u:hunter2-and-more@db/x"})
    assert "runtime_env.env_vars.DB" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert no_cluster == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"pip": ["--index-url=https://evil.example.com/hunter2-and-more"]},
        {"runtime_env": {"image_uri": "hunter2-and-more"}},
        {"runtime_env": {"config": "hunter2-and-more"}},
        {"working_dir": "hunter2-and-more"},
    ],
)
def test_no_other_refusal_shows_a_secret(arguments: dict[str, Any], no_cluster: list[Any]) -> None:
    _secrets_masker().add_mask("hunter2-and-more")
    with pytest.raises(PolicyError, match="found a value that Airflow knows as a secret") as caught:
        made(**arguments)
    assert "hunter2" not in f"{caught.value} {caught.value.details}"
    assert no_cluster == []


def test_a_refused_url_does_not_show_its_password(no_cluster: list[Any]) -> None:
    with pytest.raises(PolicyError) as caught:
        made(env_vars={"DSN": "postgres://u:hunter2@db/x"})
    assert "runtime_env.env_vars.DSN" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_clusters_own_token_is_refused_in_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = '{"conn_type": "ray", "host": "http://head:8265", "password": "token-of-cluster-7"}'
    monkeypatch.setenv("AIRFLOW_CONN_RAY_SHARED", connection)
    with pytest.raises(PolicyError, match=r"runtime_env\.env_vars\.T"):
        made(env_vars={"T": "token-of-cluster-7"})


def test_the_runner_keeps_the_shorter_of_the_two_deadlines() -> None:
    prepared = made(execution_timeout=timedelta(minutes=1), job_timeout=90)
    assert prepared.settings.limits.job_timeout == 90
    assert prepared.settings.limits.execution_timeout == 60
    assert "--job-timeout 60" in prepared.request["entrypoint"]
    assert "--job-timeout 90" in made(job_timeout=90).request["entrypoint"]
    assert "--job-timeout" not in made().request["entrypoint"]


def test_deadlines_and_codes_reach_the_watch() -> None:
    limits = made(queue_timeout=timedelta(minutes=5), outage_budget=30, poll_interval=2).settings.limits
    assert (limits.queue_timeout, limits.outage_budget, limits.poll_interval) == (300, 30, 2)
    assert (made().settings.limits.queue_timeout, made().settings.limits.outage_budget) == (840, 600)
    assert made(skip_on_exit_code=99).settings.skip_on == [99]
    assert (made().settings.on_overuse, made(on_overuse="ignore").settings.on_overuse) == ("warn", "ignore")
    assert made(skip_on_exit_code=[99, 98]).settings.skip_on == [98, 99]


@pytest.mark.parametrize("codes", [0, 256, True, "99", [99, "98"], [99.0], -9, 124, 77, 65])
def test_only_exit_codes_of_an_entrypoint_can_skip(codes: Any) -> None:
    with pytest.raises(RequestError, match=r"skip_on_exit_code: found .*; allowed: exit codes from 1 to 255"):
        made(skip_on_exit_code=codes)


@pytest.mark.parametrize("name", ["job_timeout", "queue_timeout", "outage_budget", "poll_interval"])
@pytest.mark.parametrize("value", [0, -1, "5", True, timedelta(0)])
def test_a_time_is_a_number_of_seconds_or_a_timedelta(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{name}: found .*; allowed: seconds above 0, or a timedelta"):
        made(**{name: value})


def test_an_image_is_refused_even_where_the_rules_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would take the job and fail it: it allows no package beside an image."""
    monkeypatch.setattr(environment_module, "check_environment", lambda *arguments: None)
    with pytest.raises(RequestError, match="image_uri: found 'x'; allowed: none yet"):
        made(runtime_env={"image_uri": "x"})


def test_nothing_starts_without_the_ticket_of_this_very_try() -> None:
    prepared = made()
    ticket = ticket_package(prepared.submission_id)
    assert prepared.request["runtime_env"]["py_modules"][-1] == ticket.uri
    assert f"--ticket {prepared.submission_id} " in prepared.request["entrypoint"]


def test_only_a_job_that_a_worker_waits_for_may_be_adopted() -> None:
    assert made(deferrable=False).request["metadata"]["raytenant.adoptable"] == "true"
    assert "raytenant.adoptable" not in made().request["metadata"]


def test_an_outage_is_waited_for_and_a_refusal_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    answers: list[Exception | None] = [RayUnavailableError("away"), RayUnavailableError("away"), None]

    async def ready(*arguments: Any) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr(module, "_make_ready", ready)
    assert made(outage_budget=60).submission_id
    assert answers == []
    answers = [RayAuthError("no token"), None]
    with pytest.raises(RayAuthError):
        made()
    answers = [RayUnavailableError("away")] * 1000
    with pytest.raises(RayUnavailableError):
        made(outage_budget=0.0001)


def test_a_result_that_tasks_are_mapped_over_comes_from_a_worker() -> None:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        parts = RayTenantJobOperator(task_id="parts", tenant="acme", entrypoint="true")
        alone = RayTenantJobOperator(task_id="alone", tenant="acme", entrypoint="true")
        RayTenantJobOperator.partial(task_id="work", tenant="acme").expand(entrypoint=parts.output)
    assert prepare(parts, {"ti": FakeTask()}).resume_on_worker is True  # type: ignore[typeddict-item]
    assert prepare(alone, {"ti": FakeTask()}).resume_on_worker is False  # type: ignore[typeddict-item]


def test_the_same_try_has_the_same_id_and_another_try_another() -> None:
    first, again = made().submission_id, made().submission_id
    second = made(task=FakeTask(id="0197aaaa-0000-7000-8000-000000000002", try_number=2)).submission_id
    assert first == again
    assert second != first


@pytest.mark.filterwarnings("ignore:Setting email.* is deprecated")
@pytest.mark.parametrize(
    ("arguments", "resumes"),
    [
        ({}, False),
        ({"on_failure_callback": print}, False),
        ({"on_success_callback": print}, True),
        ({"email": "a@example.org"}, True),
        ({"email": "a@example.org", "email_on_failure": False, "email_on_retry": False}, False),
    ],
)
def test_only_what_needs_a_worker_at_its_end_goes_back_to_one(
    arguments: dict[str, Any], resumes: bool
) -> None:
    assert made(**arguments).resume_on_worker is resumes


def test_the_last_try_has_no_retries_left() -> None:
    assert made(task=FakeTask(try_number=2, max_tries=2)).retries_left is True
    assert made(task=FakeTask(try_number=3, max_tries=2)).retries_left is False


def test_the_trigger_gets_the_request_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = '{"conn_type": "ray", "host": "http://head:8265", "password": "the-token-of-the-cluster"}'
    monkeypatch.setenv("AIRFLOW_CONN_RAY_SHARED", connection)
    path, arguments = made().trigger().serialize()
    assert path == "airflow_provider_raytenant.triggers.job.RayTenantJobTrigger"
    assert arguments["ray_conn_id"] == "ray_shared"
    assert "the-token-of-the-cluster" not in str(arguments)


def test_a_tiny_request_is_told_in_its_tasks_log(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(TinyRequestWarning):
        made(tenant="sized", num_cpus=0.25)
    assert "below its tiny size of 0.5 CPU, 256MiB" in capsys.readouterr().out
