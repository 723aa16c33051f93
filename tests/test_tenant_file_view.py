"""What a DAG parse reads: one tenant and its cluster, whatever the rest of the file looks like."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant import tenant_file
from airflow_provider_raytenant.domain.file_parts import NAME_ALLOWED
from airflow_provider_raytenant.exceptions import Problem, TenantFileError
from airflow_provider_raytenant.tenant_file import load, view
from tests.domain.helpers import DESIGN_EXAMPLE, changed, example_data, seeded

Writer = Callable[[Any], str]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Writes text or data (as YAML) into a file, and gives its path."""

    def write(content: Any) -> str:
        file = tmp_path / "raytenant.yaml"
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


def _problems(file: str, tenant: str = "acme") -> list[Problem]:
    with pytest.raises(TenantFileError) as error:
        view(file, tenant)
    assert error.value.file == file
    return error.value.problems


@pytest.mark.parametrize("name", ["acme", "globex"])
def test_a_view_is_the_same_as_in_the_whole_file(write: Writer, name: str) -> None:
    path = write(DESIGN_EXAMPLE)
    whole, seen = load(path), view(path, name)
    assert (seen.deployment, seen.tenant, seen.cluster) == (
        "prod-eu",
        whole.tenants[name],
        whole.clusters["shared"],
    )


def test_a_view_knows_whose_nodes_to_keep_off_whatever_else_is_wrong_with_the_others(write: Writer) -> None:
    data = example_data()
    data["clusters"]["far"] = data["clusters"]["shared"]
    data["tenants"] |= {
        "second": {"nodes": {"label": {"team": "second"}}, "weight": "heavy"},
        "first": {"nodes": {"resource": "first_node"}},
        "same": {"nodes": {"label": {"team": "second"}}},
        "wrong": {"nodes": {"label": {"team": "!x"}}},
        "none": {"nodes": None},
        "elsewhere": {"cluster": "far", "nodes": {"label": {"team": "elsewhere"}}},
        "odd": 7,
    }
    path = write(data)
    marks = ["label team=second", "resource first_node"]
    assert [str(nodes) for nodes in view(path, "acme").dedicated] == marks
    assert [str(nodes) for nodes in view(path, "first").dedicated] == marks
    assert [str(nodes) for nodes in view(path, "elsewhere").dedicated] == ["label team=elsewhere"]
    assert view(path, "acme").tenant.nodes is None
    data["defaults"]["nodes"] = {"label": {"pool": "ours"}}
    path = write(data)
    assert str(view(path, "acme").tenant.nodes) == "label pool=ours"
    assert [str(nodes) for nodes in view(path, "first").dedicated] == ["label pool=ours", *marks]
    assert view(path, "none").tenant.nodes is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tenants.globex.weight", -1),
        ("tenants.globex.oops", 1),
        ("tenants.globex", "nonsense"),
        ("tenants.globex.storage", "s3://lake/tenants/acme"),
        ("tenants.globex.cluster", "nowhere"),
        ("tenants.Not A Name", {}),
        ("clusters.other", {"groups": 1}),
        ("clusters.other", None),
        ("clusters.B A D", {}),
        ("oops", 1),
    ],
)
def test_somebody_elses_mistake_breaks_the_whole_file_but_not_the_view(
    write: Writer, path: str, value: Any
) -> None:
    file = write(changed(path, value))
    with pytest.raises(TenantFileError):
        load(file)
    assert view(file, "acme").tenant.limit == 128


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("  globex: {guarantee: 8}", "  globex: {}\n  globex: {guarantee: 8}"),
        ("{guarantee: 8}", "{guarantee: 8, guarantee: 9}"),
        ("clusters:\n", "clusters:\n  other: {}\n  other: {}\n"),
        ("  acme:\n", "  acm: {}\n  acm: {}\n  acme:\n"),
    ],
)
def test_somebody_elses_key_that_stands_twice_does_not_break_the_view(
    write: Writer, text: str, twice: str
) -> None:
    file = write(DESIGN_EXAMPLE.replace(text, twice))
    with pytest.raises(TenantFileError, match="the key twice"):
        load(file)
    assert view(file, "acme").tenant.limit == 128


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("tenants.acme.weight", -1, "tenants.acme.weight: found -1; allowed: a number above 0"),
        ("tenants.acme.limit", 1, "tenants.acme.guarantee: found 16; allowed: at most the limit of 1"),
        (
            "tenants.acme.limit",
            {"tpu": 1},
            "tenants.acme.limit.tpu: found no such group; allowed: the groups of cluster",
        ),
        ("tenants.acme.cluster", "nowhere", "tenants.acme.cluster: found 'nowhere'; allowed: the clusters"),
        (
            "tenants.acme.storage",
            "s3://lake/..",
            "tenants.acme.storage: found 's3://lake/..'; allowed: s3://",
        ),
        (
            "tenants.acme.runtime_env.uv",
            ["a"],
            "tenants.acme.runtime_env.uv: found together with pip; allowed",
        ),
        ("defaults.oops", 1, "defaults.oops: found an unknown key; allowed: cluster"),
        (
            "defaults.credentials",
            ...,
            "tenants.acme.credentials: found nothing beside storage; allowed: node",
        ),
        ("defaults.cluster", ..., "tenants.acme.cluster: found nothing; allowed: the name of a cluster"),
        ("clusters.shared.usable", "0%", "clusters.shared.usable: found '0%'; allowed: a share"),
        (
            "clusters.shared",
            None,
            "clusters.shared: found None; allowed: a mapping with the keys ray_conn_id",
        ),
        ("clusters", ..., "tenants.acme.cluster: found 'shared'; allowed: the clusters of this file"),
        ("deployment", ..., f"deployment: found None; allowed: {NAME_ALLOWED}"),
        ("deployment", "Prod EU", f"deployment: found 'Prod EU'; allowed: {NAME_ALLOWED}"),
    ],
)
def test_a_mistake_of_the_tenant_or_its_cluster_breaks_its_view(
    write: Writer, path: str, value: Any, problem: str
) -> None:
    assert [str(p) for p in _problems(write(changed(path, value))) if str(p).startswith(problem)]


@pytest.mark.parametrize(
    ("text", "twice", "key_path"),
    [
        ("    weight: 2\n", "    weight: 2\n    weight: 3\n", "tenants.acme.weight"),
        ("{REGION: eu}", "{REGION: eu, REGION: us}", "tenants.acme.runtime_env.env_vars.REGION"),
        ("    usable: 90%", "    usable: 10%\n    usable: 90%", "clusters.shared.usable"),
        ("  cluster: shared\n", "  cluster: shared\n  cluster: shared\n", "defaults.cluster"),
        ("  acme:\n", "  acme: {}\n  acme:\n", "tenants.acme"),
        ("deployment: prod-eu\n", "deployment: prod\ndeployment: prod-eu\n", "deployment"),
    ],
)
def test_its_own_key_that_stands_twice_breaks_the_view(
    write: Writer, text: str, twice: str, key_path: str
) -> None:
    (problem,) = _problems(write(DESIGN_EXAMPLE.replace(text, twice)))
    assert problem.key_path == key_path
    assert problem.found.startswith("the key twice, in lines ")


def test_a_tenant_that_is_not_there_is_told_with_the_known_ones(write: Writer) -> None:
    file = write(DESIGN_EXAMPLE)
    assert _problems(file, "acmee") == [Problem("tenants.acmee", "no such tenant", "acme, globex")]


@pytest.mark.parametrize("tenants", [..., None, {}, ["acme"], "acme"])
def test_a_file_without_tenants_says_so(write: Writer, tenants: Any) -> None:
    assert _problems(write(changed("tenants", tenants))) == [
        Problem("tenants.acme", "no such tenant", "none is defined")
    ]


def test_a_tenant_with_a_wrong_name_has_no_view(write: Writer) -> None:
    file = write(changed("tenants.Not A Name", {}))
    assert _problems(file, "Not A Name") == [Problem("tenants.Not A Name", "'Not A Name'", NAME_ALLOWED)]


def test_a_file_that_stays_the_same_is_read_once(write: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(DESIGN_EXAMPLE)
    first = view(file, "acme")
    monkeypatch.setattr(tenant_file, "_read", pytest.fail)
    assert view(file, "acme") is first


@pytest.mark.parametrize("how", ["size", "time", "file"])
def test_a_file_that_changed_is_read_again(write: Writer, how: str) -> None:
    file = write(DESIGN_EXAMPLE)
    before = Path(file).stat()
    assert view(file, "acme").tenant.limit == 128
    if how == "file":
        # As Kubernetes does it with a ConfigMap: another file under the same name.
        other = Path(file).with_suffix(".new")
        other.write_text(DESIGN_EXAMPLE.replace("limit: 128", "limit: 127"))
        other.replace(file)
    else:
        write(DESIGN_EXAMPLE.replace("limit: 128", "limit: 127 " if how == "size" else "limit: 127"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + (how == "time")))
    assert view(file, "acme").tenant.limit == 127


def test_a_file_that_was_mended_is_read_again_after_an_error(write: Writer) -> None:
    file = write(changed("tenants.acme.weight", -1))
    _problems(file)
    write(DESIGN_EXAMPLE)
    assert view(file, "acme").tenant.weight == 2


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.dates()
    | st.text(max_size=8)
    | st.sampled_from(
        ["4GiB", "90%", "node", "shared", "s3://lake/{tenant}", "; allowed: ", "found ", "acme"]
    )
)
_keys = (
    st.text(max_size=4)
    | st.integers()
    | st.none()
    | st.sampled_from(["cpu", "cpus", "memory", "acme", "slot"])
)
_anything = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)


def _paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else ()
    return [path, *(p for key, value in inner for p in _paths(value, (*path, key)))]


def _put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path or not isinstance(data, dict):
        return value
    return {**data, path[0]: _put(data.get(path[0]), path[1:], value)}


_mutations = st.lists(st.tuples(st.sampled_from(_paths(example_data())), _anything), min_size=1, max_size=3)
_numbers = count()


@settings(seeded, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_mutations)
@example([(("tenants", "globex", "weight"), 3)])
def test_whatever_stands_in_a_file_it_is_read_or_refused_and_never_breaks(
    tmp_path: Path, mutations: list[tuple[tuple[Any, ...], Any]]
) -> None:
    data: Any = example_data()
    for path, value in mutations:
        data = _put(data, path, value)
    file = tmp_path / f"{next(_numbers)}.yaml"
    file.write_text(yaml.safe_dump(data, allow_unicode=False), encoding="utf-8")
    whole = _read_or_refused(lambda: load(str(file)))
    # What is right as a whole is right for each; what is not may still be right for one.
    for name, tenant in whole.tenants.items() if whole else ():
        assert view(str(file), name).tenant == tenant
    seen = _read_or_refused(lambda: view(str(file), "acme"))
    assert seen is None or seen.tenant.name == "acme"


def _read_or_refused(read: Callable[[], Any]) -> Any:
    """What was read; ``None`` where it was refused as it should be. Any other error breaks the test."""
    try:
        return read()
    except TenantFileError as error:
        return None if error.problems else pytest.fail("refused without a reason")
