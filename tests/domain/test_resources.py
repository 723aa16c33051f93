from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.resources import Resources, Workers, request, slots_for, whole_slots_in
from tests.domain.helpers import GIB, seeded

_steps = st.integers(0, 10**6).map(lambda steps: steps / 10_000)
_amounts = st.builds(
    Resources,
    cpus=_steps,
    memory=st.integers(0, 2**44),
    gpus=_steps,
    custom=st.dictionaries(st.sampled_from("abc"), _steps),
)
_slots = st.builds(
    Resources,
    cpus=st.integers(1, 10**6).map(lambda steps: steps / 10_000),
    memory=st.integers(1, 2**44),
    gpus=st.integers(1, 10**5).map(lambda steps: steps / 10_000),
)


def test_a_sum_adds_each_resource_and_stays_on_rays_steps() -> None:
    one = Resources(0.1, 3, 0.1, {"a": 0.1, "b": 1})
    other = Resources(0.2, 4, 0.2, {"a": 0.2, "c": 2})
    assert one + other == Resources(0.3, 7, 0.3, {"a": 0.3, "b": 1, "c": 2})


@seeded
@given(_amounts, _amounts, _amounts)
def test_sums_commute_and_associate_and_hold_their_parts(
    one: Resources, two: Resources, three: Resources
) -> None:
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one.fits_in(one + two)


@pytest.mark.parametrize("count", [0, 1, 3, 7, 1000])
def test_times_a_whole_number_is_that_many_sums(count: int) -> None:
    each = Resources(0.1, 12345, 0.3, {"a": 0.7})
    total = Resources(custom={"a": 0.0})
    for _ in range(count):
        total = total + each
    assert each.times(count) == total


@pytest.mark.parametrize("gib", [64, 100, 1000, 20_000])
def test_a_share_of_memory_is_exact(gib: int) -> None:
    # 0.57 * 100 GiB in floats is one byte less than 57 GiB.
    for percent in range(1, 101):
        share = Resources(memory=gib * 100 * GIB).times(percent / 100)
        assert share.memory == gib * percent * GIB, percent


def test_a_share_is_rounded_down_to_bytes() -> None:
    assert Resources(memory=10).times(0.99).memory == 9


@pytest.mark.parametrize(
    ("need", "fits"),
    [
        (Resources(), True),
        (Resources(4, 8, 1, {"a": 2}), True),
        (Resources(4.0001, 8, 1), False),
        (Resources(4, 9, 1), False),
        (Resources(4, 8, 1.5), False),
        (Resources(custom={"a": 2.5}), False),
        (Resources(custom={"b": 1}), False),
        (Resources(custom={"b": 0}), True),
    ],
)
def test_everything_has_to_fit(need: Resources, fits: bool) -> None:
    assert need.fits_in(Resources(4, 8, 1, {"a": 2})) is fits


@pytest.mark.parametrize(
    ("footprint", "slot", "slots"),
    [
        (Resources(), Resources(1, 4), 1),
        (Resources(0.5, 1), Resources(1, 4), 1),
        (Resources(2, 4), Resources(1, 4), 2),
        (Resources(1, 5), Resources(1, 4), 2),
        (Resources(1, 1, 3), Resources(1, 4, 1), 3),
        (Resources(0.3), Resources(0.1, 1), 3),
        (Resources(0.1) + Resources(0.2), Resources(0.3, 1), 1),
        (Resources(0.7), Resources(0.1, 1), 7),
        (Resources(2.1), Resources(0.7, 1), 3),
        (Resources(1, 0, 4), Resources(1, 4), 1),
        (Resources(1, 0, 0, {"tpu": 99}), Resources(1, 4), 1),
        (Resources(0, 2**62 + 1), Resources(1, 2**61), 3),
        (Resources(5, 5, 5), Resources(), 1),
    ],
)
def test_slots_are_the_scarcest_resource_rounded_up(
    footprint: Resources, slot: Resources, slots: int
) -> None:
    assert slots_for(footprint, slot) == slots


@seeded
@given(_amounts, _slots)
def test_a_footprint_fits_in_its_slots_and_not_in_one_less(footprint: Resources, slot: Resources) -> None:
    plain = Resources(footprint.cpus, footprint.memory, footprint.gpus)
    slots = slots_for(plain, slot)
    assume(slots < 10**8)
    assert plain.fits_in(slot.times(slots))
    assert slots == 1 or not plain.fits_in(slot.times(slots - 1))


@pytest.mark.parametrize(
    ("space", "slot", "slots"),
    [
        (Resources(16, 64 * GIB), Resources(1, 4 * GIB), 16),
        (Resources(16, 63 * GIB), Resources(1, 4 * GIB), 15),
        (Resources(15.9999, 64 * GIB), Resources(1, 4 * GIB), 15),
        (Resources(0.3, 9), Resources(0.1, 1), 3),
        (Resources(8, 64, 4), Resources(8, 64, 1), 1),
        (Resources(64, 640, 4), Resources(8, 64, 1), 4),
        (Resources(0, 64), Resources(1, 4), 0),
        (Resources(16, 64), Resources(1, 4, 1), 0),
    ],
)
def test_whole_slots_are_the_scarcest_resource_rounded_down(
    space: Resources, slot: Resources, slots: int
) -> None:
    assert whole_slots_in(space, slot) == slots


@seeded
@given(_amounts, _slots)
def test_whole_slots_fit_in_their_space_and_one_more_does_not(space: Resources, slot: Resources) -> None:
    slots = whole_slots_in(space, slot)
    assume(slots < 10**8)
    assert slot.times(slots).fits_in(space)
    assert not slot.times(slots + 1).fits_in(space)


@pytest.mark.parametrize(
    ("resources", "shown"),
    [
        (Resources(), "0 CPU"),
        (Resources(0.5, 4 * GIB), "0.5 CPU + 4GiB"),
        (Resources(8, 64 * GIB, 1, {"tpu": 2, "a": 0.5}), "8 CPU + 64GiB + 1 GPU + 2 tpu + 0.5 a"),
    ],
)
def test_resources_are_shown_for_people(resources: Resources, shown: str) -> None:
    assert str(resources) == shown


@seeded
@given(_amounts)
def test_resources_come_back_from_json(resources: Resources) -> None:
    assert Resources.from_json(json.loads(json.dumps(resources.to_json()))) == resources


def test_json_holds_only_what_is_there() -> None:
    assert Resources().to_json() == {}
    assert Resources(1, gpus=2).to_json() == {"cpus": 1, "gpus": 2}


@pytest.mark.parametrize("data", [{"cpus": "1"}, {"memory": -1}, {"gpus": None}, {"custom": {"a": "x"}}])
def test_json_of_something_else_is_an_error(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        Resources.from_json(data)


def test_workers_are_counted_together_and_each() -> None:
    workers = Workers(count=4, num_cpus=0.5, memory="4GiB", num_gpus=0.25, resources={"a": 0.1})
    assert workers.each == Resources(0.5, 4 * GIB, 0.25, {"a": 0.1})
    assert workers.total == Resources(2, 16 * GIB, 1, {"a": 0.4})
    assert Workers(3).total == Resources(3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "Workers count: found 0; allowed: a whole number of at least 1"),
        ({"count": -1}, "Workers count: found -1; allowed"),
        ({"count": True}, "Workers count: found True; allowed"),
        ({"count": 2.0}, "Workers count: found 2.0; allowed"),
        ({"count": "2"}, "Workers count: found '2'; allowed"),
        ({"num_cpus": -1}, "Workers num_cpus: found -1; allowed: a number"),
        ({"num_cpus": None}, "Workers num_cpus: found None; allowed"),
        ({"memory": "4Gib"}, "Workers memory: found '4Gib'; allowed: bytes"),
        ({"num_gpus": "1"}, "Workers num_gpus: found '1'; allowed"),
        ({"resources": ["a"]}, "Workers resources: found ['a']; allowed: a dict of name to amount"),
        ({"resources": {"a": -1}}, "Workers resources['a']: found -1; allowed"),
        ({"resources": {"CPU": 1}}, "Workers resources: found 'CPU'; allowed: custom resources"),
        ({"resources": {"GPU": 1}}, "Workers resources: found 'GPU'; allowed"),
        ({"resources": {"memory": 1}}, "Workers resources: found 'memory'; allowed"),
        (
            {"resources": {"object_store_memory": 1}},
            "Workers resources: found 'object_store_memory'; allowed",
        ),
    ],
)
def test_wrong_workers_are_refused_at_once_with_the_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="allowed") as error:
        Workers(**{"count": 1, **arguments})
    assert str(error.value).startswith(message)


def test_a_request_names_its_owner() -> None:
    assert request("", 1, None, 0, None) == Resources(1)
    with pytest.raises(ValueError, match=r"^driver memory: found 'x'; allowed"):
        request("driver ", 1, "x", 0, None)
