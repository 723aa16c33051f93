"""Any arguments of the operator, also after rendering: a request, or one of our own errors and no submit."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.runtime_env import KNOWN_KEYS
from airflow_provider_raytenant.exceptions import RayTenantError, TerminalError
from airflow_provider_raytenant.operators import prepare as module
from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Secret, Workers
from airflow_provider_raytenant.operators.prepare import prepare
from tests.fuzz_data import SCALARS, TEXTS, nested
from tests.operators.test_prepare import FakeTask

# The fixture's list is emptied before each attempt.
shared = [HealthCheck.function_scoped_fixture]
seeded = settings(derandomize=True, deadline=None, max_examples=250, suppress_health_check=shared)

TENANT = st.sampled_from(["acme", "globex", "ruled", "initech", "scoped", "noded"])
INSIDE = st.sampled_from(
    """packages pip_check pip_version pip_install_options uv_check uv_version uv_pip_install_options
    setup_timeout_seconds eager_install log_files dependencies channels AWS_REGION A RAY_X zone
    ray.io/node-id fpga CPU node:x container java_jars nsight""".split()  # noqa: SIM905
)
DATA = nested(st.one_of(INSIDE, SCALARS))
NAMES = st.sampled_from(["REGION", "MODEL", "AWS_REGION", "a_1"])
LISTS = st.lists(TEXTS, max_size=3)
INSTALLER = st.one_of(
    LISTS,
    st.fixed_dictionaries(
        {"packages": LISTS},
        optional={"pip_install_options": LISTS, "pip_version": TEXTS, "pip_check": SCALARS},
    ),
    DATA,
)
# The right shapes with odd texts, or any shape at all.
SHAPED = {
    "pip": INSTALLER,
    "py_modules": st.one_of(LISTS, DATA),
    "working_dir": st.one_of(TEXTS, DATA),
    "env_vars": st.one_of(st.dictionaries(st.one_of(NAMES, TEXTS), TEXTS, max_size=3), DATA),
}
RENDERED = {
    **SHAPED,
    "entrypoint": st.one_of(TEXTS, LISTS, DATA),
    "runtime_env": st.one_of(
        st.fixed_dictionaries({}, optional={**SHAPED, "uv": INSTALLER, "excludes": LISTS, "config": DATA}),
        st.dictionaries(st.one_of(st.sampled_from(sorted(KNOWN_KEYS)), TEXTS), DATA, max_size=3),
        DATA,
    ),
    "metadata": st.one_of(st.dictionaries(TEXTS, TEXTS, max_size=2), DATA),
}
SECRETS = st.builds(
    Secret, st.sampled_from(["variable", "connection"]), st.sampled_from(["scoped_a", "noded_a", "acme_a"])
)
WORKERS = st.fixed_dictionaries({"count": SCALARS}, optional={"num_cpus": SCALARS, "memory": SCALARS})
PARSED = {
    "tenant": st.one_of(TENANT, DATA),
    "num_cpus": DATA,
    "num_gpus": DATA,
    "memory": DATA,
    "resources": DATA,
    "label_selector": DATA,
    "workers": DATA,
    "job_timeout": st.one_of(DATA, st.timedeltas()),
    "queue_timeout": DATA,
    "outage_budget": DATA,
    "skip_on_exit_code": DATA,
    "poll_interval": DATA,
    "pool": DATA,
    "pool_slots": DATA,
    "secrets": st.one_of(st.dictionaries(NAMES, st.one_of(SECRETS, DATA), max_size=2), DATA),
}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the cluster heard of."""
    calls: list[Any] = []

    async def ready(*arguments: Any) -> None:
        calls.append(len(arguments))

    monkeypatch.setattr(module, "_make_ready", ready)
    for name in ("shared", "plain"):
        monkeypatch.setenv(
            f"AIRFLOW_CONN_RAY_{name.upper()}", '{"conn_type": "ray", "host": "http://head:1"}'
        )
    return calls


def make(**arguments: Any) -> RayTenantJobOperator:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        return RayTenantJobOperator(**{"task_id": "t", "tenant": "acme", "entrypoint": "true", **arguments})


def attempt(operator: RayTenantJobOperator, cluster: list[Any]) -> bool:
    """Whether ``execute`` would hand a job to the trigger; else the error is ours, and nothing was heard."""
    cluster.clear()
    bundle = SimpleNamespace(name="ruled-dags", path=None)
    run = SimpleNamespace(team_name="ruled")
    context: Any = {"ti": FakeTask(bundle_instance=bundle), "dag_run": run}
    try:
        prepared = prepare(operator, context)
    except TerminalError as error:
        refusal = str(error)
    else:
        # What goes to Ray and into Airflow's database: JSON without the numbers and texts that have none.
        _, arguments = prepared.trigger().serialize()
        text = json.dumps(arguments, allow_nan=False, ensure_ascii=False)
        assert "\\u0000" not in text
        assert text.encode()
        assert len(cluster) == 1
        return True
    assert refusal
    assert cluster == []
    return False


@seeded
@given(
    tenant=TENANT, names=st.sets(st.sampled_from(sorted(RENDERED)), min_size=1, max_size=2), data=st.data()
)
def test_whatever_templates_bring_is_a_request_or_an_error_of_ours(
    cluster: list[Any], tenant: str, names: set[str], data: Any
) -> None:
    operator = make(tenant=tenant)
    for name in sorted(names):
        setattr(operator, name, data.draw(RENDERED[name], name))
    attempt(operator, cluster)


@settings(seeded, max_examples=400)
@given(name=st.sampled_from(sorted(PARSED)), data=st.data())
def test_whatever_a_dag_says_is_a_task_or_an_error_of_ours(cluster: list[Any], name: str, data: Any) -> None:
    try:
        operator = make(**{name: data.draw(PARSED[name])})
    except RayTenantError as error:
        refusal = str(error)
    else:
        attempt(operator, cluster)
        return
    assert refusal


@seeded
@given(given=WORKERS)
def test_whatever_workers_say_is_a_footprint_or_an_error(given: dict[str, Any]) -> None:
    try:
        workers = Workers(**given)
    except ValueError as error:
        refusal = str(error)
    else:
        try:
            assert make(tenant="globex", workers=workers).pool_slots >= 1
            return
        except RayTenantError as error:
            refusal = str(error)
    assert refusal


PACKAGES = st.lists(
    st.sampled_from(["numpy", "polars==1.30.0", "torch[cuda]>=2; python_version > '3'", "--pre", "# why"]),
    max_size=3,
)
VALID = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(["acme", "globex"]),
        "entrypoint": st.sampled_from(["true", ["python", "x.py", ""], ("a",), "cd x && y | tee 'z'"]),
        "num_cpus": st.sampled_from([0.5, 1, 2, 2.25]),
    },
    optional={
        "memory": st.sampled_from(["512MiB", 10**9, "1.5GiB"]),
        "workers": st.builds(Workers, count=st.integers(1, 2), num_cpus=st.sampled_from([0.5, 1])),
        "resources": st.just({"fpga": 1}),
        "label_selector": st.just({"zone": "!in(a,b)"}),
        "pip": st.one_of(PACKAGES, st.builds(lambda lines: {"packages": lines, "pip_check": True}, PACKAGES)),
        "env_vars": st.dictionaries(
            NAMES, st.text(st.characters(exclude_categories=["Cs", "Cc"])), max_size=2
        ),
        "runtime_env": st.sampled_from([{}, {"excludes": ["*.csv"]}, {"config": {"eager_install": True}}]),
        "metadata": st.dictionaries(NAMES, st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))),
        "job_timeout": st.sampled_from([1, 0.5, timedelta(hours=1)]),
        "skip_on_exit_code": st.sampled_from([99, [1, 2]]),
        "deferrable": st.booleans(),
    },
)


@seeded
@given(arguments=VALID)
def test_right_arguments_are_a_request(cluster: list[Any], arguments: dict[str, Any]) -> None:
    assert attempt(make(**arguments), cluster)
