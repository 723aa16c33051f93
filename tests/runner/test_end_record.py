"""The end record: written, read back in any pieces, and taken out of a quotation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.runner.end_record import PREFIX, LogSplitter, encode, strip_end_record

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
records = st.fixed_dictionaries({"v": st.just(1), "outcome": st.just("exited"), "result": json_values})
# Plain lines, and lines that look like parts of a record but make none.
near_misses = st.sampled_from(
    [
        "",
        "",
        "\r",
        "::raytenant-end::",
        PREFIX + "1/2 AAAA",
        PREFIX + "2/2 AAAA",
        PREFIX + "1/1 AAAA",
        PREFIX + "1/1 A",
    ]
)
outputs = st.lists(st.text() | near_misses, max_size=12).map("\n".join)


def read(text: str, seed: int = 0, longest: int = 0) -> tuple[list[str], LogSplitter]:
    """Feed the text whole, or in random pieces of 0 to `longest` characters."""
    splitter, lines, chance = LogSplitter(), [], random.Random(seed)
    while text:
        size = chance.randint(0, longest) if longest else len(text)
        lines += splitter.feed(text[:size])
        text = text[size:]
    return lines + splitter.finish(), splitter


def lines_of(output: str) -> list[str]:
    lines = output.split("\n")
    return lines if lines[-1] else lines[:-1]


@given(output=outputs, record=records, seed=st.integers(0, 1000), longest=st.sampled_from([0, 1, 3, 50]))
def test_output_and_record_come_apart_again(output, record, seed, longest):
    lines, splitter = read(output + encode(record), seed, longest)
    assert lines == lines_of(output)
    assert splitter.record == record


@given(output=outputs, seed=st.integers(0, 1000))
def test_output_without_a_record_is_untouched(output, seed):
    lines, splitter = read(output, seed, 7)
    assert lines == lines_of(output)
    assert splitter.record is None


@given(output=st.lists(st.text(), max_size=8).map("\n".join), record=records)
def test_stripping_leaves_the_output(output, record):
    assert lines_of(strip_end_record(output + encode(record))) == lines_of(output)


def test_a_long_record_in_several_lines():
    record = {"v": 1, "result": "ž" * 10_000}
    text = encode(record)
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == ("", "")
    assert [line.split(" ")[1] for line in lines[1:-1]] == [f"{k}/7" for k in range(1, 8)]
    assert max(len(line.split(" ")[2]) for line in lines[1:-1]) == 4000
    assert text.isascii()
    assert read("x" + text, 1, 900)[1].record == record


def test_the_last_complete_record_wins():
    first, second = {"v": 1, "outcome": "exited", "n": 1}, {"v": 1, "outcome": "exited", "n": 2}
    cut = encode({"v": 1, "result": "x" * 9000})[:5000]
    lines, splitter = read("a" + encode(first) + "b\n" + encode(second) + cut, 5, 11)
    assert splitter.record == second
    assert lines[:2] == ["a", "b"]


def test_the_record_is_known_only_when_complete():
    splitter = LogSplitter()
    text = encode({"v": 1, "result": "x" * 9000})
    assert splitter.feed("out\n" + text[:-1]) == ["out"]
    assert splitter.record is None
    assert splitter.feed("\n") == []
    assert splitter.record is not None
    assert splitter.finish() == []


def test_a_missing_last_newline_is_forgiven():
    lines, splitter = read("out\n" + encode({"v": 1})[:-1])
    assert (lines, splitter.record) == (["out"], {"v": 1})


@pytest.mark.parametrize("record", [{"v": 2}, {}, {"v": 1, "deep": None}])
def test_other_objects_are_ordinary_lines(record):
    deep: object = None
    for _ in range(300):
        deep = [deep]
    if "deep" in record:
        record = {"v": 1, "deep": deep}
    text = encode(record)
    lines, splitter = read("out\n" + text)
    assert lines == ["out", *text.split("\n")[:-1]]
    assert splitter.record is None


def test_lines_come_as_soon_as_they_are_complete():
    splitter = LogSplitter()
    assert splitter.feed("a\nb") == ["a"]
    assert splitter.feed("c\n\n") == ["bc"]
    assert splitter.feed("d\n") == ["", "d"]


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"v": 1, "result": float("nan")})
    with pytest.raises(ValueError, match="at most 9999"):
        encode({"v": 1, "result": "x" * 30_000_000})


def test_stripping_a_quotation_that_begins_inside_a_record():
    text = encode({"v": 1, "result": "x" * 9000})
    tail = "\n".join(text.split("\n")[2:])
    assert strip_end_record(f"Job failed, last logs:\n{tail}") == "Job failed, last logs:\n"
