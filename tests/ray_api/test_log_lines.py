"""Each line of an output once and in order, whatever readings of it are like."""

from __future__ import annotations

import io
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.ray_api.log_lines import LogLines
from airflow_provider_raytenant.runner.end_record import encode

RECORD = encode({"v": 1, "outcome": "exited", "exit_code": 0}).encode()
LONG_RECORD = encode({"v": 1, "outcome": "exited", "result": "x" * 9000}).encode()

# Small alphabets make what is rare by chance frequent: ends of lines, halves of characters, records.
WORDS = [b"\n", b"\r", b"\r\n", b"", b" ", b"\t", b"a", b"bc", "ä".encode(), "日".encode(), "🚀".encode()]
OUTPUTS = st.lists(st.sampled_from(WORDS), max_size=40).map(b"".join)
WITH_RECORDS = st.lists(st.sampled_from([*WORDS, RECORD, LONG_RECORD]), max_size=20).map(b"".join)
INVALID = st.lists(st.sampled_from([*WORDS, b"\xff", b"\xe6\x97", b"\x9f"]), max_size=40).map(b"".join)


def as_text(output: bytes) -> bytes:
    """What Ray's text gives of a file."""
    return io.TextIOWrapper(io.BytesIO(output), "utf-8").read().encode()


def lines_of(output: bytes) -> list[str]:
    """The lines of a whole output, records apart."""
    return read(LogLines(), [output], last=True)


def split_lines(output: bytes) -> list[str]:
    lines = [line.decode("utf-8", "replace") for line in output.split(b"\n")]
    return lines if lines[-1] else lines[:-1]


def read(lines: LogLines, pieces: list[bytes], *, last: bool = False) -> list[str]:
    lines.begin()
    found = [line for piece in pieces for line in lines.feed(lines.pass_over(piece))]
    return found + (lines.finish() if last else [])


@st.composite
def cut_up(draw: st.DrawFn, output: bytes, least: int = 0) -> list[bytes]:
    """The output, or its beginning of at least ``least`` bytes, in pieces."""
    end = draw(st.integers(least, len(output)))
    cuts = sorted(draw(st.lists(st.integers(0, end), max_size=8)))
    return [output[start:stop] for start, stop in zip([0, *cuts], [*cuts, end], strict=True)]


@given(st.data(), INVALID)
def test_any_bytes_in_any_pieces(data: st.DataObject, output: bytes) -> None:
    pieces = data.draw(cut_up(output, len(output)))

    assert read(LogLines(), pieces, last=True) == split_lines(output)


@settings(max_examples=400)
@given(st.data(), WITH_RECORDS | INVALID)
def test_any_readings_with_any_breaks_and_successors(data: st.DataObject, output: bytes) -> None:
    """Raw readings that break anywhere, of a file that grows; each by the same or by a new one."""
    lines = LogLines()
    found: list[str] = []
    for _ in range(data.draw(st.integers(0, 6))):
        if data.draw(st.booleans()):
            lines = LogLines(lines.size)
        found += read(lines, data.draw(cut_up(output)))
    found += read(lines, data.draw(cut_up(output, len(output))), last=True)

    assert found == lines_of(output)
    assert read(LogLines(lines.size), [output], last=True) == []


@settings(max_examples=400)
@given(st.data(), st.lists(st.sampled_from([*WORDS, b"x" + RECORD]), max_size=30).map(b"".join))
def test_any_switch_between_raw_and_text(data: st.DataObject, output: bytes) -> None:
    """A line that came raw keeps its CRs; otherwise nothing differs, nothing is missing, nothing is twice."""
    lines = LogLines()
    found: list[str] = []
    for number in reversed(range(data.draw(st.integers(1, 6)))):
        if data.draw(st.booleans()):
            lines = LogLines(lines.size)
        grown = output if number == 0 else output[: data.draw(st.integers(0, len(output)))]
        if data.draw(st.booleans()):
            found += read(lines, data.draw(cut_up(grown, len(grown))), last=number == 0)
        elif _is_utf8(grown):
            found += read(lines, [as_text(grown)], last=number == 0)
        elif number == 0:
            found += read(lines, [grown], last=True)

    def pieces(given: list[str]) -> list[str]:
        return [piece for line in given for piece in line.removesuffix("\r").split("\r")]

    assert pieces(found) == pieces(lines_of(output))


def _is_utf8(output: bytes) -> bool:
    try:
        output.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(WITH_RECORDS, st.sampled_from([RECORD, LONG_RECORD]))
def test_a_successor_finds_the_record_at_the_end(output: bytes, record: bytes) -> None:
    first = LogLines()
    read(first, [output + record], last=True)
    successor = LogLines(first.size)

    assert read(successor, [output + record], last=True) == []
    assert successor.ends_with_record
    assert successor.record == first.record is not None


@given(st.data(), OUTPUTS, st.integers(0, 60))
def test_no_more_is_given_than_the_limit(data: st.DataObject, output: bytes, limit: int) -> None:
    lines = LogLines(max_bytes=limit)
    found = read(lines, data.draw(cut_up(output, len(output))), last=True)
    everything = split_lines(output)

    assert found == everything[: len(found)]
    assert lines.size <= limit
    assert lines.full == (len(found) < len(everything))


def test_a_record_does_not_count_for_the_limit() -> None:
    lines = LogLines(max_bytes=10)

    assert read(lines, [b"hello\n" + LONG_RECORD], last=True) == ["hello"]
    assert not lines.full
    assert lines.record is not None


def test_a_line_without_end_is_given_up_at_the_limit() -> None:
    lines = LogLines(max_bytes=1_000_000)
    lines.feed(b"first\n")
    fed = 0
    while not lines.full:
        lines.feed(b"x" * 10_000)
        fed += 10_000

    assert 1_000_000 <= fed <= 1_100_000


def test_only_a_record_at_the_end_ends_the_output() -> None:
    lines = LogLines()
    assert read(lines, [b"mine\n" + RECORD]) == ["mine"]
    assert lines.ends_with_record
    assert read(lines, [b"mine\n" + RECORD + b"more"]) == []
    assert not lines.ends_with_record
    assert lines.finish() == ["more"]


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length() -> None:
    lines = LogLines()
    started = time.monotonic()
    for _ in range(20_000):
        assert lines.feed(b"x" * 512) == []
    (line,) = lines.feed(b"\n")

    assert line == "x" * 20_000 * 512
    assert time.monotonic() - started < 2


def test_many_crlfs_are_passed_over_in_one_go() -> None:
    output = b"\r\n" * 500_000 + b"last\n"
    lines = LogLines(500_000)
    started = time.monotonic()

    assert read(lines, [output]) == ["last"]
    assert time.monotonic() - started < 2
