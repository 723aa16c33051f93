"""What one mapped task asks for, from a serialized DAG's arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.mapped_request import own_placement
from airflow_provider_raytenant.domain.resources import Workers
from airflow_provider_raytenant.domain.tenants import Cluster, Tenant
from tests.domain.helpers import seeded

CLUSTER = Cluster.model_validate(
    {
        "ray_conn_id": "ray",
        "groups": {
            "cpu": {"slot": {"cpus": 1, "memory": "1GiB"}},
            "gpu": {"slot": {"gpus": 1, "cpus": 4, "memory": "16GiB"}},
            "big": {"slot": {"cpus": 8, "memory": "64GiB"}, "labels": {"size": "big"}},
        },
    }
)
ACME = Tenant.model_validate({"name": "acme", "cluster": "shared", "limit": 16})


def slots(expand: Any, map_index: int = 0, **partial: Any) -> tuple[str, int] | None:
    """Group and slots."""
    known = {"tenant": "acme", "default_args": {"tenant": "acme"}, **partial}
    found = own_placement(ACME, CLUSTER, (), partial_kwargs=known, expand=expand, map_index=map_index)
    return None if found is None else (found.group, found.slots)


FOUR = "Workers(count=4, num_cpus=1.0, memory=None, num_gpus=0.0, resources=None)"


@pytest.mark.parametrize(
    ("expand", "partial", "found"),
    [
        ({"num_cpus": [1, 2.5, 9]}, {}, [1, 3, 9]),
        ({"num_cpus": [1, 2]}, {"memory": "4GiB"}, [4, 4]),
        ({"num_cpus": [1, 2]}, {"default_args": {"memory": "4GiB"}}, [4, 4]),
        ({"num_cpus": [1, 2]}, {"default_args": {"memory": "4GiB"}, "memory": "1GiB"}, [1, 2]),
        ({"memory": ["512MiB", 3 * 2**30, "3GB"]}, {}, [1, 3, 3]),
        ({"memory": ["2GiB"]}, {"workers": FOUR}, [5]),
        ({"workers": [FOUR, None, str(Workers(count=2, memory="3GiB"))]}, {}, [5, 1, 6]),
        ({"workers": [str(Workers(count=1, num_cpus=2, resources={"fpga": 1}))]}, {}, [3]),
        ({"resources": [{"fpga": 1}, None]}, {"num_cpus": 2}, [2, 2]),
        ({"num_cpus": [1, 3], "env_vars": [{"A": "1"}]}, {}, [1, 3]),
        ({"env_vars": [{"A": "1"}, {"A": "2"}], "num_cpus": [3]}, {}, [3, 3]),
        ([{"num_cpus": 1}, {"memory": "4GiB"}, {"entrypoint": "true"}], {"num_gpus": 0}, [1, 4, 1]),
        ([{"num_cpus": 2}, {"entrypoint": "true"}], {"default_args": {"num_cpus": 5}}, [2, 5]),
    ],
)
def test_what_is_readable_is_sized(expand: Any, partial: dict[str, Any], found: list[int]) -> None:
    assert [slots(expand, index, **partial) for index in range(len(found))] == [("cpu", n) for n in found]


def test_the_group_is_that_of_the_own_request() -> None:
    assert slots({"num_gpus": [0, 2]}, 1) == ("gpu", 2)
    assert slots({"num_cpus": [9]}, label_selector={"size": "big"}) == ("big", 2)


@pytest.mark.parametrize(
    ("expand", "map_index", "partial"),
    [
        # Nothing of the footprint is mapped: the declared slots are the author's word.
        ({"entrypoint": ["a", "b"]}, 0, {}),
        ([{"entrypoint": "a"}], 0, {}),
        # Out of an upstream task.
        ({"num_cpus": object()}, 0, {}),
        ({"num_cpus": [1, 2], "entrypoint": object()}, 0, {}),
        (object(), 0, {}),
        ([object(), {"num_cpus": 2}], 0, {}),
        # Which of two turns fastest is not known.
        ({"num_cpus": [1, 2], "entrypoint": ["a", "b"]}, 0, {}),
        # A DAG of a version that left default_args out.
        ({"num_cpus": [1, 2]}, 0, {"default_args": None}),
        # Not there.
        ({"num_cpus": [1, 2]}, 2, {}),
        ({"num_cpus": [1]}, 1, {}),
        ([{"num_cpus": 1}], 1, {}),
        ([{"num_cpus": 1}], -1, {}),
        ({}, 0, {}),
        (None, 0, {}),
        # Wrong: the task itself will say so.
        ({"num_cpus": [0]}, 0, {}),
        ({"num_cpus": ["2"]}, 0, {}),
        ({"num_cpus": [None]}, 0, {}),
        ({"num_cpus": [17]}, 0, {}),
        ({"memory": ["lots"]}, 0, {}),
        ({"memory": {"a": "1GiB"}}, 0, {}),
        ({"resources": [["fpga"]]}, 0, {}),
        ({"num_cpus": [1]}, 0, {"label_selector": "big"}),
        ({"num_cpus": [1]}, 0, {"workers": 4}),
        ({"workers": ["Workers(4)"]}, 0, {}),
        ({"workers": ["Workers(count=-1)"]}, 0, {}),
        ({"workers": ["Workers(count=4, colour=1)"]}, 0, {}),
        ({"workers": ["Workers(**{})"]}, 0, {}),
        ({"workers": ["Workers(count=__import__('os').getpid())"]}, 0, {}),
        ({"workers": ["os.system('true')"]}, 0, {}),
        ({"workers": ["Workers(count=4"]}, 0, {}),
        ({"workers": ["(" * 9000]}, 0, {}),
        ({"workers": ["Workers(count=" + "1" * 20_000 + ")"]}, 0, {}),
    ],
)
def test_what_is_not_readable_or_wrong_is_left_to_the_task(
    expand: Any, map_index: int, partial: dict[str, Any]
) -> None:
    assert slots(expand, map_index, **partial) is None


@seeded
@given(
    count=st.integers(1, 8),
    cpus=st.sampled_from([0.5, 1.0, 2.0]),
    memory=st.sampled_from([None, "1GiB", 5_000_000]),
    custom=st.none() | st.dictionaries(st.text(max_size=5), st.integers(1, 3), max_size=2),
)
def test_workers_survive_as_their_text(count: int, cpus: float, memory: Any, custom: Any) -> None:
    workers = Workers(count=count, num_cpus=cpus, memory=memory, resources=custom)
    assert slots({"workers": [str(workers)]}) == slots({"workers": [workers]})
    assert slots({"workers": [workers]}) is not None or workers.total.cpus + 1 > 16


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@seeded
@given(
    expand=st.dictionaries(st.sampled_from(["num_cpus", "memory", "workers", "resources"]), JSON, max_size=3)
    | st.lists(st.dictionaries(st.sampled_from(["num_cpus", "num_gpus", "memory"]), JSON, max_size=3)),
    partial=st.dictionaries(st.sampled_from(["num_cpus", "memory", "label_selector", "workers"]), JSON),
    map_index=st.integers(-1, 5),
)
def test_nothing_that_a_dag_can_hold_makes_it_raise(
    expand: Any, partial: dict[str, Any], map_index: int
) -> None:
    found = slots(expand, map_index, **partial)
    assert found is None or found[1] >= 1
    # acme's limit is about the first group.
    assert found is None or found[0] != "cpu" or found[1] <= 16
