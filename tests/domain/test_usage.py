"""Footprint against peak: when to warn, and in which words."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.usage import (
    NOTABLY,
    OnOveruse,
    Peak,
    UsageSample,
    checked_on_overuse,
    declared_in,
    driver_in,
    ray_spelling,
)
from airflow_provider_raytenant.exceptions import RequestError
from tests.domain.helpers import GIB, seeded

DRIVER = Resources(cpus=1)

counts = st.integers(0, 40_000).map(lambda steps: steps / 10_000)
amounts = st.builds(
    Resources,
    cpus=counts,
    memory=st.integers(0, 4 * GIB),
    gpus=counts,
    custom=st.dictionaries(st.sampled_from(["fpga", "disk"]), counts),
)


@pytest.mark.parametrize(
    ("declared", "held", "says"),
    [
        (Resources(cpus=4), Resources(cpus=5), "held up to 6 CPUs; declared 4"),
        (Resources(cpus=1), Resources(cpus=0.5), "held up to 1.5 CPUs; declared 1"),
        (Resources(cpus=4), Resources(cpus=3), None),
        (Resources(cpus=4, memory=GIB), Resources(memory=GIB), None),
        (Resources(cpus=4, memory=GIB), Resources(memory=3 * GIB), "held up to 3GiB; declared 1GiB"),
        (Resources(cpus=4), Resources(memory=GIB, gpus=1), "held up to 1GiB, 1 GPU; declared 0B, 0 GPUs"),
        (Resources(cpus=1, custom={"a": 1}), Resources(custom={"a": 2}), "held up to 2 a; declared 1"),
        (Resources(cpus=1), Resources(custom={"a": 0.5}), "held up to 0.5 a; declared 0"),
    ],
)
def test_what_it_says_of_overuse(declared: Resources, held: Resources, says: str | None) -> None:
    peak = Peak(declared, DRIVER)
    assert peak.add(held) == says
    assert peak.overuse() == says
    assert peak.to_json()["over"] == says


def test_it_warns_once_and_again_when_the_peak_has_grown_notably() -> None:
    peak = Peak(Resources(cpus=4), DRIVER)
    warnings = [peak.add(Resources(cpus=cpus)) for cpus in (3, 4, 4, 2, 5, 5.24, 5.25, 9)]
    assert warnings == [
        None,
        "held up to 5 CPUs; declared 4",
        None,
        None,
        None,
        None,
        "held up to 6.25 CPUs; declared 4",
        "held up to 10 CPUs; declared 4",
    ]
    assert peak.samples == 8


def test_another_resource_is_worth_a_warning_of_its_own() -> None:
    peak = Peak(Resources(cpus=1), DRIVER)
    assert peak.add(Resources(cpus=4)) == "held up to 5 CPUs; declared 1"
    assert peak.add(Resources(cpus=4, gpus=1)) == "held up to 5 CPUs, 1 GPU; declared 1 CPU, 0 GPUs"
    assert peak.add(Resources(cpus=4, gpus=1)) is None


def test_custom_resources_are_found_again_however_ray_spells_them() -> None:
    peak = Peak(Resources(cpus=1, custom={"my_fpga_card": 2}), DRIVER)
    assert ray_spelling("my_fpga_card") == "myFpgaCard"
    assert peak.add(Resources(custom={"myFpgaCard": 2})) is None
    assert peak.most.custom == {"my_fpga_card": 2}
    assert peak.add(Resources(custom={"myFpgaCard": 3})) == "held up to 3 my_fpga_card; declared 2"


@pytest.mark.parametrize(
    ("declared", "held", "line"),
    [
        (
            Resources(cpus=4, memory=8 * GIB),
            Resources(cpus=5, memory=2 * GIB),
            "Peak use: 6 CPUs, 2GiB reserved, of declared 4 CPUs, 8GiB",
        ),
        (Resources(cpus=1), Resources(), "Peak use: 1 CPU, of declared 1 CPU"),
        (
            Resources(cpus=1, memory=GIB, gpus=2, custom={"fpga": 1}),
            Resources(gpus=1),
            "Peak use: 1 CPU, 0B reserved, 1 GPU, 0 fpga, of declared 1 CPU, 1GiB, 2 GPUs, 1 fpga",
        ),
        (Resources(), Resources(), "Peak use: 1 CPU, of declared nothing"),
    ],
)
def test_the_line_at_the_end(declared: Resources, held: Resources, line: str) -> None:
    peak = Peak(declared, DRIVER)
    peak.add(held)
    assert peak.summary() == line


def test_the_summary_as_json() -> None:
    peak = Peak(Resources(cpus=1, memory=GIB), DRIVER)
    peak.add(Resources(cpus=3))
    assert json.loads(json.dumps(peak.to_json())) == {
        "peak": {"cpus": 4.0},
        "declared": {"cpus": 1, "memory": GIB},
        "samples": 1,
        "over": "held up to 4 CPUs; declared 1",
    }


@seeded
@given(amounts, st.lists(amounts, max_size=6), st.integers(0, 6))
def test_a_watch_that_goes_on_from_another_says_nothing_twice_and_forgets_nothing(
    declared: Resources, samples: list[Resources], cut: int
) -> None:
    whole, first, second = (Peak(declared, DRIVER) for _ in range(3))
    warnings = [whole.add(held) for held in samples]
    for held in samples[:cut]:
        first.add(held)
    second.go_on_from(json.loads(json.dumps(first.to_json())))
    again = [second.add(held) for held in samples[cut:]]
    assert second.to_json() == whole.to_json()
    assert second.summary() == whole.summary()
    assert sum(text is not None for text in again) <= sum(text is not None for text in warnings)


@pytest.mark.parametrize(
    "before", [{}, {"peak": 1, "samples": 1}, {"peak": {"cpus": "x"}, "samples": 1}, [], 7]
)
def test_nothing_goes_on_from_nonsense(before: Any) -> None:
    peak = Peak(Resources(cpus=1), DRIVER)
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        peak.go_on_from(before)
    assert peak.samples == 0


def test_a_peak_outgrows_what_it_is_notably_above() -> None:
    peak = Peak(Resources(cpus=1), Resources(cpus=4))
    assert not peak.has_outgrown(Resources())
    peak.add(Resources())
    assert peak.has_outgrown(Resources())
    assert peak.has_outgrown(Resources(cpus=3.2))
    assert not peak.has_outgrown(Resources(cpus=3.3))
    assert not peak.has_outgrown(peak.most)


@seeded
@given(amounts, st.lists(amounts, max_size=8))
def test_a_peak_is_above_every_sample_and_made_of_them(declared: Resources, samples: list[Resources]) -> None:
    peak = Peak(declared, DRIVER)
    for held in samples:
        peak.add(held)
        assert (held + DRIVER).fits_in(peak.most)
    for amount in ("cpus", "memory", "gpus"):
        seen = [getattr(held + DRIVER, amount) for held in samples]
        assert getattr(peak.most, amount) == max(seen, default=0)
    assert (peak.overuse() is None) == peak.most.fits_in(declared)


@seeded
@given(amounts, st.lists(amounts, max_size=8))
def test_warnings_speak_of_every_overuse_and_never_of_little_news(
    declared: Resources, samples: list[Resources]
) -> None:
    peak = Peak(declared, DRIVER)
    spoken = [peak.most for held in samples if peak.add(held) is not None]
    assert bool(spoken) == (not peak.most.fits_in(declared))
    for before, after in pairwise(spoken):
        # Another resource is above, or one that was has grown.
        assert not after.fits_in(before)
    if spoken:
        allowed = declared + spoken[-1].times(NOTABLY)
        assert peak.most.fits_in(allowed)


@seeded
@given(st.dictionaries(st.sampled_from(["01", "02", "03", "04"]), amounts), st.sets(st.sampled_from("1234")))
def test_a_job_with_several_drivers_holds_what_all_of_them_hold(
    held: dict[str, Resources], wanted: set[str]
) -> None:
    ids = {f"0{digit}" for digit in wanted}
    total = UsageSample(held).of(ids)
    mine = [held[job_id] for job_id in sorted(ids & set(held))]
    if total is None:
        assert not mine
    else:
        assert mine
        assert total.cpus == pytest.approx(sum(one.cpus for one in mine))
        assert total.memory == sum(one.memory for one in mine)


def test_footprint_and_driver_of_a_request() -> None:
    footprint = Resources(cpus=3, memory=GIB, custom={"fpga": 1})
    request = {
        "metadata": {METADATA_PREFIX + "footprint": json.dumps(footprint.to_json())},
        "entrypoint_num_cpus": 1,
        "entrypoint_memory": 5,
        "entrypoint_num_gpus": 0.5,
        "entrypoint_resources": {"fpga": 1},
    }
    assert declared_in(request) == footprint
    assert driver_in(request) == Resources(1, 5, 0.5, {"fpga": 1})
    assert driver_in({"entrypoint_num_cpus": 2}) == Resources(cpus=2)


@pytest.mark.parametrize(
    "metadata", [{}, None, {"footprint": "{"}, {"footprint": "[]"}, {"footprint": '{"cpus": "many"}'}]
)
def test_no_footprint_where_none_is_sound(metadata: dict[str, str] | None) -> None:
    named = None if metadata is None else {METADATA_PREFIX + key: text for key, text in metadata.items()}
    assert declared_in({"metadata": named}) is None
    assert declared_in({}) is None


@pytest.mark.parametrize("value", ["ignore", "warn", OnOveruse.WARN])
def test_what_may_be_done_about_overuse(value: str) -> None:
    assert checked_on_overuse(value) == value


@pytest.mark.parametrize("value", ["x", "WARN", "", None, True, 1, ["warn"]])
def test_what_may_not(value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        checked_on_overuse(value)
    assert str(caught.value) == f"on_overuse: found {value!r}; allowed: ignore, warn"
