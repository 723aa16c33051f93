"""The rules of a tenant: what its tasks may ask for, and what the refusal says."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from airflow_provider_raytenant.domain.resources import Resources, Workers
from airflow_provider_raytenant.domain.rules import check_environment, check_origin, check_request
from airflow_provider_raytenant.domain.tenants import Rules
from airflow_provider_raytenant.exceptions import PolicyError
from tests.domain.helpers import GIB, make_tenant

ONE = Resources(cpus=1)


def breach(rule: str, *words: str) -> Any:
    """Expects the breach of a rule, with these words in its message."""

    def check(error: PolicyError) -> bool:
        again = pickle.loads(pickle.dumps(error))
        return (
            again.details["rule"] == rule
            and bool(again.details["found"] and again.details["allowed"])
            and all(word in str(again) for word in (*words, f"(rule {rule} of the tenant file)"))
        )

    return pytest.raises(PolicyError, check=check)


# -- runtime_env and image_uri ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {"working_dir": "x", "py_modules": ["y"], "excludes": ["*.csv"]},
        {"pip": ["a"], "env_vars": {"A": "1"}},
        {"uv": {"packages": ["a"], "uv_check": True}},
        {"config": {"setup_timeout_seconds": 60}, "worker_process_setup_hook": "kit.setup"},
    ],
)
def test_without_rules_a_task_may_use_what_stays_inside(env: dict[str, Any]) -> None:
    check_environment(make_tenant(), env)


@pytest.mark.parametrize("key", ["conda", "py_executable"])
def test_without_rules_it_may_not_reach_outside(key: str) -> None:
    with breach("runtime_env", f"runtime_env: found '{key}'", "pip, py_modules"):
        check_environment(make_tenant(), {key: "x"})
    check_environment(make_tenant(rules={"runtime_env": [key]}), {key: "x"})


def test_the_keys_of_the_rule_are_all_that_a_task_may_use() -> None:
    tenant = make_tenant(rules={"runtime_env": ["env_vars"]})
    check_environment(tenant, {"env_vars": {"A": "1"}})
    with breach("runtime_env", "found 'pip'; allowed for tenant acme: env_vars"):
        check_environment(tenant, {"pip": []})
    with breach("runtime_env", "no key"):
        check_environment(make_tenant(rules={"runtime_env": []}), {"env_vars": {}})


def test_an_image_is_allowed_by_its_own_rule_only() -> None:
    with breach("image_uri", "found 'image_uri'"):
        check_environment(make_tenant(), {"image_uri": "registry.example.org/x"})
    check_environment(make_tenant(rules={"image_uri": True}), {"image_uri": "registry.example.org/x"})


def test_log_files_of_a_task_are_refused_since_the_agent_writes_them() -> None:
    with breach("runtime_env", "found 'log_files'"):
        check_environment(make_tenant(), {"config": {"log_files": ["../../../x"]}})


# -- env_vars --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_PROFILE", "aws_secret_access_key", "Aws_Region_X"),
        *("RAY_ADDRESS", "RAY_AUTH_TOKEN", "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"),
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "ld_preload", "LD_AUDIT", "DYLD_INSERT_LIBRARIES"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "PATH", "Path", "HOME"),
        *("BASH_ENV", "ENV", "IFS", "BASH_FUNC_x"),
        *(
            "PIP_INDEX_URL",
            "PIP_CONFIG_FILE",
            "UV_INDEX",
            "UV_DEFAULT_INDEX",
            "GIT_SSH_COMMAND",
            "CONDA_PREFIX",
        ),
        *("HTTPS_PROXY", "https_proxy", "all_proxy", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
    ],
)
def test_without_rules_names_that_change_credentials_ray_python_or_pip_are_refused(name: str) -> None:
    with breach("env_vars", f"env_vars: found '{name}'", "names other than AWS_*, RAY_*"):
        check_environment(make_tenant(), {"env_vars": {"A": "1", name: "x"}})


def test_other_names_and_harmless_ones_pass() -> None:
    names = (
        "REGION",
        "MODEL",
        "AWS_REGION",
        "PYTHONUNBUFFERED",
        "OMP_NUM_THREADS",
        "MY_PATH",
        "XRAY_ID",
        "EOLD_X",
    )
    check_environment(make_tenant(), {"env_vars": dict.fromkeys(names, "1")})


def test_allow_opens_a_name_and_deny_is_the_tenants_own_list() -> None:
    tenant = make_tenant(rules={"env_vars": {"allow": ["AWS_ENDPOINT_URL*"]}})
    check_environment(tenant, {"env_vars": {"AWS_ENDPOINT_URL_S3": "x"}})
    with breach("env_vars", "AWS_PROFILE"):
        check_environment(tenant, {"env_vars": {"AWS_PROFILE": "x"}})
    tenant = make_tenant(rules={"env_vars": {"deny": ["SECRET_*"], "allow": []}})
    check_environment(tenant, {"env_vars": {"AWS_PROFILE": "x"}})
    with breach("env_vars", "found 'SECRET_1'; allowed for tenant acme: names other than SECRET_* (rule"):
        check_environment(tenant, {"env_vars": {"SECRET_1": "x"}})


def test_a_denied_name_that_only_the_platform_may_set_stays_the_platforms() -> None:
    own = {"env_vars": {"AWS_ENDPOINT_URL": "http://s3"}, "conda": "base"}
    tenant = make_tenant(runtime_env=own)
    check_environment(tenant, {})
    with breach("env_vars", "AWS_ENDPOINT_URL"):
        check_environment(tenant, {"env_vars": {"AWS_ENDPOINT_URL": "http://s3"}})


# -- pip_index -------------------------------------------------------------------------------------


def test_another_index_is_refused_with_the_line_and_the_indexes_of_the_rule() -> None:
    rules = {"pip_index": ["https://pkgs.example.org/simple"]}
    line = "--extra-index-url=https://evil.example.com/simple"
    with breach("pip_index", "pip.packages[1]", line, "sources: https://pkgs.example.org/simple"):
        check_environment(make_tenant(rules=rules), {"pip": ["a", line]})
    with breach("pip_index", "uv.packages[0]", "sources: none beside the tenant's own"):
        check_environment(make_tenant(), {"uv": [line]})
    check_environment(make_tenant(rules=rules), {"pip": ["-i https://pkgs.example.org/simple", "a"]})


def test_the_tenants_own_index_may_be_named_again() -> None:
    own = {"pip": {"packages": [], "pip_install_options": ["--index-url", "https://own.example.org/simple"]}}
    tenant = make_tenant(runtime_env=own)
    check_environment(tenant, {"pip": ["--index-url https://own.example.org/simple", "a"]})
    with breach("pip_index"):
        check_environment(tenant, {"pip": ["--index-url https://own.example.org/other", "a"]})


def test_a_refusal_hides_passwords_and_is_not_endless() -> None:
    with breach("pip_index", "https://***@h/simple") as caught:
        check_environment(make_tenant(), {"pip": ["-i https://ann:hunter2@h/simple"]})
    assert "hunter2" not in f"{caught.value} {caught.value.details}"
    with breach("pip_index", "...") as caught:
        check_environment(make_tenant(), {"pip": ["a b" * 10**5]})
    assert len(str(caught.value)) < 1000


# -- resources, largest, label_selector ------------------------------------------------------------


def test_without_rules_any_size_label_and_resource_but_rays_own() -> None:
    driver = Resources(1000, 1000 * GIB, 8, {"fpga": 2, "accelerator_type:A100": 0.001})
    check_request(make_tenant(), driver, Workers(count=1, resources={"tpu": 1}), {"zone": "!in(a,b)"})


@pytest.mark.parametrize(
    "name", ["node:10.0.0.1", "node:__internal_head__", "CPU_group_0_0123456789abcdef0123456789abcdef"]
)
def test_without_rules_rays_own_resources_are_refused(name: str) -> None:
    with breach("resources", f"resources: found '{name}'"):
        check_request(make_tenant(), Resources(1, custom={name: 0.001}))
    with breach("resources", f"workers resources: found '{name}'"):
        check_request(make_tenant(), ONE, Workers(count=1, resources={name: 0.001}))
    check_request(make_tenant(rules={"resources": ["*"]}), Resources(1, custom={name: 0.001}))


def test_custom_resources_are_those_of_the_rule() -> None:
    tenant = make_tenant(rules={"resources": ["fpga", "acme_*"]})
    check_request(tenant, Resources(1, custom={"fpga": 1, "acme_nodes": 0.1}))
    with breach("resources", "found 'globex_nodes'; allowed for tenant acme: fpga, acme_*"):
        check_request(tenant, Resources(1, custom={"globex_nodes": 0.1}))
    with breach("resources", "none"):
        check_request(make_tenant(rules={"resources": []}), Resources(1, custom={"fpga": 1}))


@pytest.mark.parametrize(
    ("driver", "workers", "words"),
    [
        (Resources(33), None, "num_cpus: found '33'; allowed for tenant acme: at most 32"),
        (Resources(1, 129 * GIB), None, "memory: found '129GiB'; allowed for tenant acme: at most 128GiB"),
        (Resources(1, gpus=1), None, "num_gpus: found '1'; allowed for tenant acme: at most 0"),
        (ONE, Workers(count=1, num_cpus=32.5), "workers num_cpus: found '32.5'"),
        (ONE, Workers(count=1, memory="1TiB"), "workers memory: found '1TiB'"),
        (ONE, Workers(count=1, num_gpus=0.5), "workers num_gpus: found '0.5'"),
    ],
)
def test_the_largest_request_counts_for_the_driver_and_for_each_worker(
    driver: Resources, workers: Workers | None, words: str
) -> None:
    tenant = make_tenant(rules={"largest": {"cpus": 32, "memory": "128GiB", "gpus": 0}})
    with breach("largest", words):
        check_request(tenant, driver, workers)
    check_request(tenant, Resources(32, 128 * GIB), Workers(count=100, num_cpus=32, memory="128GiB"))


def test_what_the_largest_request_does_not_name_has_no_limit() -> None:
    tenant = make_tenant(rules={"largest": {"cpus": 2}})
    check_request(tenant, Resources(2, 10**15, 8))


@pytest.mark.parametrize(
    "selector",
    [
        {"zone": "a"},
        {"zone": " in( a , b ) "},
        {"zone": "in(b)", "size": "big-2"},
        {"any": "!x"},
        {"any": "!in(x,y)"},
        {},
        None,
    ],
)
def test_labels_of_the_rule_pass(selector: dict[str, str] | None) -> None:
    labels = {"zone": ["a", "b"], "size": ["big-*"], "any": ["*"]}
    check_request(make_tenant(rules={"label_selector": labels}), ONE, None, selector)


@pytest.mark.parametrize(
    "selector",
    [
        {"zone": "c"},
        {"zone": "A"},
        {"ZONE": "a"},
        {"zone": "in(a,c)"},
        {"zone": "in(a,)"},
        {"zone": "!c"},
        {"zone": "!in(c)"},
        {"zone": ""},
        {"zone": "in(a"},
        {"zone": "a", "rack": "1"},
    ],
)
def test_other_labels_are_refused(selector: dict[str, str]) -> None:
    tenant = make_tenant(rules={"label_selector": {"zone": ["a", "b"]}})
    with breach("label_selector", "label_selector: found", "allowed for tenant acme: zone: a or b"):
        check_request(tenant, ONE, None, selector)


def test_without_rules_a_job_is_not_pinned_to_one_node() -> None:
    with breach("label_selector", "ray.io/node-id"):
        check_request(make_tenant(), ONE, None, {"ray.io/node-id": "in(0a,0b)"})


# -- bundles and teams -----------------------------------------------------------------------------


def test_without_rules_any_bundle_and_team_may_use_the_tenant() -> None:
    check_origin(make_tenant(), None, None)
    check_origin(make_tenant(), "x", "y")


def test_only_dags_of_the_rules_bundles_and_teams_may_use_the_tenant() -> None:
    tenant = make_tenant(rules={"bundles": ["acme-*"], "teams": ["acme"]})
    check_origin(tenant, "acme-dags", "acme")
    with breach("bundles", "the DAG's bundle: found 'globex-dags'; allowed for tenant acme: acme-*"):
        check_origin(tenant, "globex-dags", "acme")
    with breach("teams", "the DAG's team: found 'globex'; allowed for tenant acme: acme"):
        check_origin(tenant, "acme-dags", "globex")


def test_what_airflow_does_not_say_meets_no_rule() -> None:
    with breach("bundles", "found 'none'"):
        check_origin(make_tenant(rules={"bundles": ["*"]}), None, None)
    with breach("teams", "found 'none'"):
        check_origin(make_tenant(rules={"teams": ["*"]}), "x", None)


# -- the tenant's rules on the defaults' -----------------------------------------------------------


def rules(**values: Any) -> Rules:
    return Rules.model_validate(values)


def test_a_tenants_rules_lie_on_the_defaults_rule_by_rule() -> None:
    base = rules(pools=["p"], bundles=["b"], largest={"cpus": 2, "gpus": 1}, env_vars={"deny": ["X"]})
    own = rules(image_uri=True, bundles=["c"], largest={"cpus": 4}, env_vars={"allow": ["Y"]})
    both = own.over(base)
    assert (both.pools, both.bundles, both.image_uri) == (["p"], ["c"], True)
    assert both.largest is not None
    assert (both.largest.cpus, both.largest.memory, both.largest.gpus) == (4, None, 1)
    assert (both.env_vars.deny, both.env_vars.allow) == (["X"], ["Y"])
    assert rules().over(base) == base
    assert base.over(rules()) == base


def test_null_takes_a_rule_of_the_defaults_away() -> None:
    base = rules(bundles=["b"], largest={"cpus": 2}, resources=["x"])
    both = rules(bundles=None, largest=None, resources=None).over(base)
    assert (both.bundles, both.largest, both.resources) == (None, None, None)
