from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.runtime_env import KNOWN_KEYS, apart, checked, merge, package_key
from tests.domain.helpers import seeded

Env = dict[str, Any]


@pytest.mark.parametrize(
    ("base", "task", "merged"),
    [
        ({}, {}, {}),
        ({"pip": ["a"]}, {}, {"pip": ["a"]}),
        ({}, {"pip": ["a"]}, {"pip": ["a"]}),
        # env_vars by key, the task wins
        (
            {"env_vars": {"A": "1", "B": "1"}},
            {"env_vars": {"B": "2", "C": "2"}},
            {"env_vars": {"A": "1", "B": "2", "C": "2"}},
        ),
        # pip and uv by package, the task wins, what is left keeps its place
        ({"pip": ["a==1", "b==1"]}, {"pip": ["A==2", "c"]}, {"pip": ["b==1", "A==2", "c"]}),
        ({"uv": ["a==1", "b==1"]}, {"uv": ["a==2"]}, {"uv": ["b==1", "a==2"]}),
        (
            {"pip": ["my_pkg[x]==1"]},
            {"pip": ["My.Pkg>=2; os_name=='posix'"]},
            {"pip": ["My.Pkg>=2; os_name=='posix'"]},
        ),
        ({"pip": ["a==1"]}, {"pip": ["ab==1"]}, {"pip": ["a==1", "ab==1"]}),
        ({"pip": ["a"]}, {"pip": []}, {"pip": ["a"]}),
        # the options of a pip dict by key
        (
            {"pip": {"packages": ["a==1"], "pip_check": False, "pip_version": "==24"}},
            {"pip": {"packages": ["b"], "pip_check": True}},
            {"pip": {"packages": ["a==1", "b"], "pip_check": True, "pip_version": "==24"}},
        ),
        (
            {"pip": ["a==1", "b"]},
            {"pip": {"packages": ["a==2"], "pip_check": True}},
            {"pip": {"packages": ["b", "a==2"], "pip_check": True}},
        ),
        ({"pip": {"packages": ["a"]}}, {"pip": ["b"]}, {"pip": ["a", "b"]}),
        # py_modules one after the other
        (
            {"py_modules": ["s3://l/a.zip"]},
            {"py_modules": ["s3://l/b.zip"]},
            {"py_modules": ["s3://l/a.zip", "s3://l/b.zip"]},
        ),
        # the rest is replaced
        ({"working_dir": "s3://l/a.zip"}, {"working_dir": "s3://l/b.zip"}, {"working_dir": "s3://l/b.zip"}),
        (
            {"config": {"eager_install": False}},
            {"config": {"setup_timeout_seconds": 9}},
            {"config": {"setup_timeout_seconds": 9}},
        ),
        ({"conda": {"dependencies": ["a"]}}, {"conda": "other"}, {"conda": "other"}),
        ({"excludes": ["a"]}, {"excludes": ["b"]}, {"excludes": ["b"]}),
    ],
)
def test_the_task_goes_on_top_of_the_tenants_base(base: Env, task: Env, merged: Env) -> None:
    before = copy.deepcopy((base, task))
    assert merge(base, task) == merged
    assert (base, task) == before


@pytest.mark.parametrize(
    ("requirement", "key"),
    [
        ("pandas", "pandas"),
        ("pandas==2.2.3", "pandas"),
        ("  Pandas >= 2 ", "pandas"),
        ("My_Cool.Pkg", "my-cool-pkg"),
        ("my--cool__pkg~=1.0", "my-cool-pkg"),
        ("torch[cuda,extra]==2", "torch"),
        ("torch [cuda]==2", "torch"),
        ("a!=1", "a"),
        ("a<2,>1", "a"),
        ("a===1", "a"),
        ("a (>=1)", "a"),
        ("a; python_version < '3.12'", "a"),
        ("a;python_version<'3.12'", "a"),
        ("a @ https://host/a-1-py3-none-any.whl", "a"),
        ("a@https://host/a.whl", "a"),
        # no package's name at the start: the line is its own key
        ("https://host/a.whl", "https://host/a.whl"),
        ("git+https://host/a.git@v1", "git+https://host/a.git@v1"),
        (" -r requirements.txt ", "-r requirements.txt"),
        ("--index-url https://host", "--index-url https://host"),
        ("./wheels/a.whl", "./wheels/a.whl"),
    ],
)
def test_a_package_is_known_by_its_normalised_name(requirement: str, key: str) -> None:
    assert package_key(requirement) == key


@pytest.mark.parametrize(
    ("base", "task", "second", "first"),
    [
        ({"pip": ["a"]}, {"conda": "env"}, "conda", "pip"),
        ({"conda": "env"}, {"pip": ["a"]}, "conda", "pip"),
        ({"pip": ["a"]}, {"uv": ["a"]}, "uv", "pip"),
        ({"uv": ["a"]}, {"conda": "env"}, "conda", "uv"),
        ({}, {"pip": ["a"], "uv": ["b"]}, "uv", "pip"),
        ({"pip": ["a"], "conda": "env"}, {}, "conda", "pip"),
    ],
)
def test_two_installers_are_refused_wherever_they_come_from(
    base: Env, task: Env, second: str, first: str
) -> None:
    with pytest.raises(ValueError, match="together") as error:
        merge(base, task)
    assert str(error.value) == f"{second}: found together with {first}; allowed: one of pip, uv, conda"


def test_an_empty_installer_stands_in_nobodys_way() -> None:
    assert merge({"pip": []}, {"conda": "env"}) == {"pip": [], "conda": "env"}


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"pips": ["a"]}, f"pips: found an unknown key; allowed: {', '.join(sorted(KNOWN_KEYS))}"),
        ({1: "a", "x": "b"}, "1: found an unknown key; allowed: conda"),
        ({"env_vars": ["A"]}, "env_vars: found ['A']; allowed: a dict of name to text"),
        ({"env_vars": {"A": 1}}, "env_vars.A: found 1; allowed: text (quote it: '1')"),
        ({"env_vars": {"A": True}}, "env_vars.A: found True; allowed: text"),
        ({"env_vars": {"A": None}}, "env_vars.A: found None; allowed: text"),
        ({"env_vars": {"1A": "x"}}, "env_vars: found the name '1A'; allowed: letters, digits and _"),
        ({"env_vars": {"A=B": "x"}}, "env_vars: found the name 'A=B'; allowed"),
        ({"env_vars": {"": "x"}}, "env_vars: found the name ''; allowed"),
        ({"env_vars": {1: "x"}}, "env_vars: found the name 1; allowed"),
        (
            {"env_vars": {"RAYTENANT_TENANT": "x"}},
            "env_vars.RAYTENANT_TENANT: found a reserved name; allowed: names without RAYTENANT_",
        ),
        ({"pip": "requirements.txt"}, "pip: found 'requirements.txt'; allowed: a list of texts"),
        ({"pip": None}, "pip: found None; allowed: a list of texts"),
        ({"pip": ["a", 1]}, "pip: found 1; allowed: a list of texts"),
        ({"uv": ["  "]}, "uv: found '  '; allowed: a list of texts"),
        ({"pip": {"pip_check": True}}, "pip: found no 'packages' in {'pip_check': True}; allowed: a list"),
        ({"pip": {"packages": "a"}}, "pip.packages: found 'a'; allowed: a list of texts"),
        ({"py_modules": "a"}, "py_modules: found 'a'; allowed: a list of texts"),
        ({"working_dir": ""}, "working_dir: found ''; allowed: a folder or an s3:// archive"),
        ({"working_dir": 3}, "working_dir: found 3; allowed"),
    ],
)
@pytest.mark.parametrize("side", ["checked", "base", "task"])
def test_a_wrong_environment_is_refused_with_its_key(env: Env, message: str, side: str) -> None:
    with pytest.raises(ValueError, match="allowed") as error:
        {"checked": lambda: checked(env), "base": lambda: merge(env, {}), "task": lambda: merge({}, env)}[
            side
        ]()
    assert str(error.value).startswith(message)


def test_every_key_that_ray_knows_is_let_through() -> None:
    values = {
        "env_vars": {"A": "1"},
        "py_modules": ["m"],
        "working_dir": "w",
        "pip": ["a"],
        "uv": [],
        "config": {"setup_timeout_seconds": -1, "eager_install": True, "log_files": ["a.log"]},
        "excludes": ["*.csv"],
        "worker_process_setup_hook": "kit.hooks.setup",
    }
    env = {key: values.get(key, "x") for key in KNOWN_KEYS - {"conda"}}
    assert checked(env) == env
    for conda in ("base", {"dependencies": ["python", {"pip": ["a"]}]}):
        assert checked({"conda": conda}) == {"conda": conda}


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"image_uri": ["x"]}, "image_uri: found ['x']; allowed: a text"),
        ({"py_executable": " "}, "py_executable: found ' '"),
        ({"worker_process_setup_hook": print}, "worker_process_setup_hook: found"),
        ({"worker_process_setup_hook": "os"}, "allowed: a function by name"),
        ({"worker_process_setup_hook": "os.system('x')"}, "worker_process_setup_hook: found"),
        ({"config": []}, "config: found []"),
        ({"config": {"x": 1}}, "allowed: a dict of eager_install, log_files, setup_timeout_seconds"),
        ({"config": {"setup_timeout_seconds": True}}, "config.setup_timeout_seconds: found True"),
        ({"config": {"setup_timeout_seconds": 0}}, "config.setup_timeout_seconds: found 0"),
        ({"config": {"setup_timeout_seconds": float("nan")}}, "config.setup_timeout_seconds: found nan"),
        ({"config": {"eager_install": "no"}}, "config.eager_install: found 'no'"),
        ({"config": {"log_files": "a.log"}}, "config.log_files: found 'a.log'"),
        ({"conda": None}, "conda: found None"),
        ({"conda": {"x": {1, 2}}}, "conda: found"),
        ({"conda": {"x": LOOP}}, "conda: found"),
        ({"conda": {"x": float("inf")}}, "conda: found"),
    ],
)
def test_a_wrong_shape_is_refused_before_ray_fails_a_job_with_it(env: Env, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        checked(env)


def test_a_tuple_becomes_a_list_and_the_callers_dict_stays_its_own() -> None:
    variables = {"A": "1"}
    env = checked({"pip": ("a", "b"), "py_modules": ("m",), "env_vars": variables})
    assert env == {"pip": ["a", "b"], "py_modules": ["m"], "env_vars": {"A": "1"}}
    env["env_vars"]["B"] = "2"
    assert variables == {"A": "1"}


_names = st.sampled_from(["a", "A", "b_c", "b-c", "B.C", "d"])
_lines = st.lists(st.builds("{}=={}".format, _names, st.integers(1, 3)), max_size=5, unique_by=package_key)


@seeded
@given(_lines, _lines)
def test_merging_packages_keeps_every_line_of_the_task_and_no_package_twice(
    base: list[str], task: list[str]
) -> None:
    merged = merge({"pip": base}, {"pip": task})["pip"]
    keys = [package_key(line) for line in merged]
    assert merged[len(merged) - len(task) :] == task
    assert len(set(keys)) == len(keys)
    assert set(keys) == {package_key(line) for line in base + task}


MARK = "# raytenant: for prod/acme alone"


@pytest.mark.parametrize(
    ("env", "marked"),
    [
        ({"pip": ["a==1"]}, {"pip": [MARK, "a==1"]}),
        ({"uv": ["a==1"]}, {"uv": [MARK, "a==1"]}),
        (
            {"pip": {"packages": ["a"], "pip_check": True}},
            {"pip": {"packages": [MARK, "a"], "pip_check": True}},
        ),
        # Ray's default against a cache that all tenants of a node would share
        (
            {"pip": {"packages": ["a"], "pip_install_options": ["--pre"]}},
            {"pip": {"packages": [MARK, "a"], "pip_install_options": ["--pre", "--no-cache-dir"]}},
        ),
        (
            {"uv": {"packages": ["a"], "uv_pip_install_options": ["--no-cache", "--pre"]}},
            {"uv": {"packages": [MARK, "a"], "uv_pip_install_options": ["--no-cache", "--pre"]}},
        ),
        # an empty list makes no environment, and must not begin to
        ({"pip": []}, {"pip": []}),
        ({"conda": "prepared"}, {"conda": "prepared"}),
        (
            {"conda": {"name": "x", "dependencies": ["a"]}},
            {"conda": {"name": "raytenant-for-prod-acme-alone", "dependencies": ["a"]}},
        ),
        ({"env_vars": {"A": "1"}}, {"env_vars": {"A": "1"}}),
    ],
)
def test_an_owners_name_stands_in_what_ray_keeps_environments_by(env: Env, marked: Env) -> None:
    before = copy.deepcopy(env)
    assert apart(env, "prod/acme") == marked
    assert env == before


def test_another_index_in_an_env_var_is_another_environment() -> None:
    variables: list[dict[str, str]] = [
        {},
        {"REGION": "eu"},
        {"PIP_INDEX_URL": "http://one"},
        {"PIP_INDEX_URL": "http://two"},
        {"UV_INDEX_URL": "http://one"},
    ]
    assert len({str(apart({"pip": ["a"], "env_vars": v}, "prod/acme")["pip"]) for v in variables}) == 4


_marks = st.lists(st.sampled_from(["a", MARK, MARK.replace("acme", "globex")]))


@seeded
@given(_marks, _marks)
def test_no_list_of_one_owner_is_ever_that_of_another(one: list[str], other: list[str]) -> None:
    assert apart({"pip": [*one, "p"]}, "prod/acme") != apart({"pip": [*other, "p"]}, "prod/globex")


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_options_of_an_installer_come_one_after_the_other(installer: str) -> None:
    key = {"pip": "pip_install_options", "uv": "uv_pip_install_options"}[installer]
    base = {installer: {"packages": ["a"], key: ["--index-url", "http://acme"]}}
    task = {installer: {"packages": ["b"], key: ["--pre"]}}
    assert merge(base, task) == {
        installer: {"packages": ["a", "b"], key: ["--index-url", "http://acme", "--pre"]}
    }


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"pip": {"packages": ["a"], "index": "x"}}, "pip.index: found an unknown key; allowed: packages"),
        ({"pip": {"packages": ["a"], "uv_check": True}}, "pip.uv_check: found an unknown key"),
        ({"pip": {"packages": ["a"], "pip_check": "y"}}, "pip.pip_check: found 'y'; allowed: true or false"),
        ({"uv": {"packages": ["a"], "uv_version": 1}}, "uv.uv_version: found 1; allowed: a text"),
        (
            {"uv": {"packages": ["a"], "uv_pip_install_options": "--pre"}},
            "uv.uv_pip_install_options: found '--pre'; allowed: a list of texts",
        ),
    ],
)
def test_a_wrong_option_of_an_installer_is_refused_before_ray_fails_on_it(env: Env, message: str) -> None:
    with pytest.raises(ValueError, match="allowed") as error:
        checked(env)
    assert str(error.value).startswith(message)
