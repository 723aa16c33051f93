from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.tenants import RoleCredentials
from airflow_provider_raytenant.exceptions import Problem, TenantFileError
from airflow_provider_raytenant.tenant_file import load, view
from tests.domain.helpers import DESIGN_EXAMPLE, GIB, changed, example_data
from tests.wrong_files import WRONG, WRONG_ELSEWHERE

Writer = Callable[[Any], str]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Writes text, bytes or data (as YAML) into a file, and gives its path."""

    def write(content: Any) -> str:
        file = tmp_path / "raytenant.yaml"
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return str(file)

    return write


def _problems(file: str, read: Callable[..., Any] = load, *arguments: str) -> list[Problem]:
    with pytest.raises(TenantFileError) as error:
        read(file, *arguments)
    assert error.value.file == file
    # File, key path, what was found, what is allowed: all four are in the text, line by line.
    lines = [f"{file}: {p.key_path}: found {p.found}; allowed: {p.allowed}" for p in error.value.problems]
    assert str(error.value) == "\n".join(lines)
    assert all(p.key_path and p.found and p.allowed for p in error.value.problems)
    return error.value.problems


def test_the_designs_example_is_read_whole(write: Writer) -> None:
    file = load(write(DESIGN_EXAMPLE))
    assert (file.deployment, list(file.clusters), list(file.tenants)) == (
        "prod-eu",
        ["shared"],
        ["acme", "globex"],
    )
    cluster = file.clusters["shared"]
    assert (cluster.ray_conn_id, cluster.usable, cluster.default_group) == ("ray_shared", 0.9, "cpu")
    assert cluster.reserve.resources == Resources(8, 32 * GIB)
    assert cluster.autoscale is not None
    assert cluster.autoscale.max.resources == Resources(256, 1024 * GIB)
    assert cluster.autoscale.largest_node is not None
    assert cluster.autoscale.largest_node.resources == Resources(16, 64 * GIB)
    assert [group.slot.resources for group in cluster.groups.values()] == [
        Resources(1, 4 * GIB),
        Resources(8, 64 * GIB, 1),
    ]
    acme, globex = file.tenants.values()
    assert (acme.name, acme.guarantee, acme.weight, acme.limit) == ("acme", 16, 2, 128)
    assert acme.runtime_env == {"pip": ["pandas==2.2.3"], "env_vars": {"REGION": "eu"}}
    assert (globex.guarantee, globex.weight, globex.limit, globex.runtime_env) == (8, 1, None, {})
    assert [tenant.storage for tenant in (acme, globex)] == [
        "s3://lake/tenants/acme",
        "s3://lake/tenants/globex",
    ]
    assert isinstance(globex.credentials, RoleCredentials)
    assert globex.credentials.role_arn == "arn:aws:iam::000000000000:role/tenant-jobs"


def test_defaults_are_filled_in_and_a_tenants_own_words_win(write: Writer) -> None:
    data = example_data()
    data["defaults"] |= {"limit": 50, "weight": 3, "guarantee": 2, "rules": {"pools": ["p"]}}
    data["defaults"]["runtime_env"] = {"pip": ["pandas==1", "numpy"], "env_vars": {"REGION": "us", "A": "1"}}
    data["tenants"]["globex"] = {"limit": None, "storage": None, "rules": {"pools": []}}
    acme, globex = load(write(data)).tenants.values()
    assert (acme.guarantee, acme.weight, acme.limit, acme.rules.pools) == (16, 2, 128, ["p"])
    assert acme.runtime_env == {"pip": ["numpy", "pandas==2.2.3"], "env_vars": {"REGION": "eu", "A": "1"}}
    assert (globex.guarantee, globex.weight, globex.limit, globex.rules.pools) == (2, 3, None, [])
    assert (globex.storage, globex.prefix) == (None, None)
    assert globex.runtime_env == data["defaults"]["runtime_env"]


def test_a_tenants_rules_lie_on_the_defaults_rule_by_rule(write: Writer) -> None:
    data = example_data()
    data["defaults"]["rules"] = {"bundles": ["x"], "largest": {"cpus": 2, "memory": "1GiB"}}
    data["tenants"]["acme"]["rules"] = {"image_uri": True, "largest": {"cpus": 4}}
    data["tenants"]["globex"]["rules"] = {"bundles": None, "largest": None}
    file = write(data)
    for tenants in (load(file).tenants, {name: view(file, name).tenant for name in ("acme", "globex")}):
        acme, globex = (tenants[name].rules for name in ("acme", "globex"))
        assert (acme.bundles, acme.image_uri) == (["x"], True)
        assert acme.largest is not None
        assert (acme.largest.cpus, acme.largest.memory) == (4, GIB)
        assert (globex.bundles, globex.image_uri, globex.largest) == (None, False, None)


@pytest.mark.parametrize(
    ("path", "value", "key_path", "found", "allowed"),
    [*((path, value, path, found, allowed) for path, value, found, allowed in WRONG), *WRONG_ELSEWHERE],
)
def test_a_wrong_file_is_refused_with_key_path_found_and_allowed(
    write: Writer, path: str, value: Any, key_path: str, found: str, allowed: str
) -> None:
    problems = _problems(write(changed(path, value)))
    same_key = [problem for problem in problems if problem.key_path == key_path]
    assert same_key, problems
    assert same_key[0].found.startswith(found)
    assert same_key[0].allowed.startswith(allowed)


def test_every_problem_is_told_at_once_in_the_order_of_the_key_paths(write: Writer) -> None:
    data = example_data()
    data["clusters"]["shared"]["usable"] = "0%"
    data["tenants"]["acme"]["weight"] = -1
    data["tenants"]["globex"]["oops"] = 1
    keys = ["clusters.shared.usable", "tenants.acme.weight", "tenants.globex.oops"]
    assert [problem.key_path for problem in _problems(write(data))] == keys


@pytest.mark.parametrize(
    "storage",
    ["s3://lake/tenants/acm", "s3://lake/tenants/acme2", "s3://lake/tenants/ACME", "s3://lake2/tenants/acme"],
)
def test_siblings_of_a_prefix_are_no_overlap(write: Writer, storage: str) -> None:
    assert load(write(changed("tenants.globex.storage", storage))).tenants["globex"].storage == storage


@pytest.mark.parametrize(
    ("before", "twice", "key_path", "lines"),
    [
        ("tenants:\n", "tenants:\n", "tenants", (15, 16)),
        ("  globex: ", "  globex: {}\n", "tenants.globex", (21, 22)),
        ("    weight: 2\n", "    weight: 3\n", "tenants.acme.weight", (18, 19)),
        ("  shared:\n", "  shared: {}\n", "clusters.shared", (7, 8)),
        ("    usable: ", "    usable: 10%\n", "clusters.shared.usable", (9, 10)),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_its_lines(
    write: Writer, before: str, twice: str, key_path: str, lines: tuple[int, int]
) -> None:
    assert DESIGN_EXAMPLE.count(before) == 1
    problems = _problems(write(DESIGN_EXAMPLE.replace(before, twice + before)))
    expected = Problem(key_path, f"the key twice, in lines {lines[0]} and {lines[1]}", "each key once")
    assert expected in problems


def test_a_key_that_stands_twice_in_a_flow_mapping_or_a_list_is_found_too(write: Writer) -> None:
    text = DESIGN_EXAMPLE.replace("{REGION: eu}", "{REGION: eu, REGION: us}")
    text = text.replace("[pandas==2.2.3]", "[{a: 1, a: 2}]")
    twice = {problem.key_path for problem in _problems(write(text)) if problem.allowed == "each key once"}
    assert twice == {"tenants.acme.runtime_env.env_vars.REGION", "tenants.acme.runtime_env.pip.0.a"}


def test_an_anchor_that_is_used_and_overridden_is_no_key_twice(write: Writer) -> None:
    text = DESIGN_EXAMPLE.replace("  acme:\n", "  acme: &base\n").replace(
        "{guarantee: 8}", "{<<: *base, weight: 5}"
    )
    globex = load(write(text)).tenants["globex"]
    assert (globex.guarantee, globex.weight) == (16, 5)


def test_an_alias_of_a_part_that_it_lies_in_is_refused(write: Writer) -> None:
    text = DESIGN_EXAMPLE.replace("{guarantee: 8}", "{runtime_env: {conda: &loop {again: *loop}}}")
    loop = Problem(
        "tenants.globex.runtime_env.conda.again",
        "an alias of a part that it lies in",
        "aliases without loops",
    )
    assert loop in _problems(write(text))
    assert view(write(text), "acme").tenant.name == "acme"


@pytest.mark.parametrize(
    ("content", "found", "allowed"),
    [
        ("a: [1", "while parsing a flow sequence", "well-formed YAML in UTF-8"),
        ("a: 1\n---\nb: 1\n", "expected a single document", "well-formed YAML in UTF-8"),
        ("a: !!python/object:os.system {}", "could not determine a constructor", "well-formed YAML in UTF-8"),
        ("a: 2024-13-45", "month must be in 1..12", "well-formed YAML in UTF-8"),
        (f"a: {'9' * 5000}", "Exceeds the limit", "well-formed YAML in UTF-8"),
        ("[" * 2000, "", "well-formed YAML in UTF-8"),
        (b"a: \xff\xfe", "'utf-8' codec can't decode byte 0xff", "well-formed YAML in UTF-8"),
        ("", "None", "a mapping with the keys deployment, defaults, clusters, tenants"),
        ("# nothing", "None", "a mapping with the keys"),
        ("- a", "['a']", "a mapping with the keys"),
        ("text", "'text'", "a mapping with the keys"),
    ],
)
@pytest.mark.parametrize("read", [load, view])
def test_what_is_no_yaml_mapping_is_refused_by_everyone(
    write: Writer, content: str | bytes, found: str, allowed: str, read: Callable[..., Any]
) -> None:
    (problem,) = _problems(write(content), read, *(["acme"] if read is view else []))
    assert problem.key_path == "(file)"
    assert problem.found.startswith(found)
    assert problem.allowed.startswith(allowed)


@pytest.mark.parametrize(
    ("name", "found"), [("gone.yaml", "No such file or directory"), ("", "Is a directory")]
)
@pytest.mark.parametrize("read", [load, view])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, found: str, read: Callable[..., Any]
) -> None:
    arguments = ["acme"] if read is view else []
    assert _problems(str(tmp_path / name), read, *arguments) == [Problem("(file)", found, "a readable file")]
