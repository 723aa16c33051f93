"""Any data as tenant file: read, or refused by one of our own errors; nothing else comes out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.tenants import TenantFile
from airflow_provider_raytenant.exceptions import TenantFileError
from airflow_provider_raytenant.tenant_file import TenantView, _cached_view, load, view
from tests.domain.helpers import DESIGN_EXAMPLE, example_data
from tests.fuzz_data import SCALARS, TEXTS, nested

# Words of the file, so that wrong data goes deep before it is noticed.
WORDS = st.sampled_from(
    """deployment defaults clusters tenants shared acme globex cluster storage credentials guarantee weight
    limit runtime_env rules pools pip_index image_uri env_vars deny allow resources label_selector largest
    bundles teams cpus memory gpus groups cpu gpu slot labels autoscale max largest_node reserve usable
    ray_conn_id pip uv conda config py_modules working_dir packages aws_conn_id role_arn
    duration node_endpoint_url secrets""".split()  # noqa: SIM905
)
DATA = nested(st.one_of(WORDS, SCALARS.filter(lambda value: value == value)))

Read = TypeVar("Read")
ODD_TEXT = st.text(alphabet="[]{}:-,&*!|>#'\"% \n\tab1", max_size=60)

seeded = settings(derandomize=True, deadline=None, max_examples=150)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "raytenant.yaml"


def attempt(read: Callable[..., Read], *arguments: str) -> Read | None:
    """What is read; ``None`` where it is refused with at least one problem that says something."""
    try:
        return read(*arguments)
    except TenantFileError as error:
        problems = error.problems
    assert problems
    assert all(problem.key_path and problem.found and problem.allowed for problem in problems)
    return None


def outcome(file: Path, content: str | bytes) -> tuple[TenantFile | None, TenantView | None]:
    """What both ways of reading make of the file."""
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    # Two files of the same size in the same tick of the clock are one to the cache.
    _cached_view.cache_clear()
    whole, part = attempt(load, str(file)), attempt(view, str(file), "acme")
    if whole is not None and "acme" in whole.tenants:
        # What is right as a whole is right in part, and says the same.
        assert part is not None
        assert part.tenant == whole.tenants["acme"]
    return whole, part


def places(data: Any) -> list[tuple[Any, ...]]:
    """The path of every value of the file."""
    found: list[tuple[Any, ...]] = []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += [(key,), *((key, *path) for path in places(value))]
    return found


FULL = example_data()
FULL["tenants"]["acme"]["rules"] = {
    "pools": ["p"],
    "runtime_env": ["pip"],
    "pip_index": ["https://pkgs.example.org/simple"],
    "image_uri": False,
    "env_vars": {"deny": ["AWS_*"], "allow": ["A"]},
    "resources": ["fpga"],
    "label_selector": {"zone": ["a"]},
    "largest": {"cpus": 1, "memory": "1GiB", "gpus": 0},
    "bundles": ["b"],
    "teams": ["t"],
    "secrets": ["acme_*"],
}
FULL["defaults"]["credentials"] |= {"duration": "90m", "node_endpoint_url": "http://s3.internal:9000"}
PLACES = places(FULL)


def test_the_full_example_is_right(file: Path) -> None:
    whole, part = outcome(file, yaml.safe_dump(FULL))
    assert whole is not None
    assert part is not None


@seeded
@given(data=DATA)
def test_any_data_is_read_or_refused(file: Path, data: Any) -> None:
    outcome(file, yaml.safe_dump(data))


@seeded
@given(
    text=st.one_of(TEXTS, st.binary(max_size=40), st.text(alphabet="[]{}:-,&*!|>#'\"% \n\tab1", max_size=60))
)
def test_any_text_is_read_or_refused(file: Path, text: str | bytes) -> None:
    outcome(file, text)


@settings(seeded, max_examples=200)
@given(path=st.sampled_from(PLACES), value=DATA, gone=st.booleans())
def test_one_odd_value_in_a_right_file_is_read_or_refused(
    file: Path, path: tuple[Any, ...], value: Any, gone: bool
) -> None:
    data = copy.deepcopy(FULL)
    parent: Any = data
    for key in path[:-1]:
        parent = parent[key]
    if gone:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    outcome(file, yaml.safe_dump(data))


@seeded
@given(cut=st.integers(0, len(DESIGN_EXAMPLE)), put=TEXTS, over=st.integers(0, 40))
def test_a_file_with_a_torn_text_is_read_or_refused(file: Path, cut: int, put: str, over: int) -> None:
    outcome(file, DESIGN_EXAMPLE[:cut] + put + DESIGN_EXAMPLE[cut + over :])
