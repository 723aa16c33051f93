"""Secrets in a stream, in texts and in results: all hidden, and nothing else."""

from __future__ import annotations

import base64
import itertools
import json
import shlex
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_raytenant.runner.masking import Mask
from airflow_provider_raytenant.runner.secret_forms import forms

seeded = settings(derandomize=True, deadline=None, max_examples=100)

KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEF+/aa\nshort\n-----END PRIVATE KEY-----\n"

# Few letters, so that values overlap, repeat and begin each other; no `*`, which a mark could complete.
letters = st.sampled_from("aab'\"\\ /+%\n\tž🐎")
secrets = st.one_of(st.text(letters, min_size=5, max_size=24), st.text(min_size=5, max_size=40)).filter(
    lambda text: "*" not in text and bool(forms(text))
)
secret_lists = st.lists(secrets, min_size=1, max_size=4)


@st.composite
def cases(draw):
    """Secrets, and an output in which they, parts of them and their encodings stand among other things."""
    values = draw(secret_lists)
    found = sorted(form for value in values for form in forms(value))
    whole = st.sampled_from(found)
    part = whole.flatmap(
        lambda form: st.tuples(st.integers(0, len(form)), st.integers(0, len(form))).map(
            lambda ends: form[min(ends) : max(ends)]
        )
    )
    other = st.binary(max_size=12) | st.text(letters, max_size=12).map(str.encode)
    return values, b"".join(draw(st.lists(whole | part | other, max_size=10)))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def spans_of(form: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    start = data.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = data.find(form, start + 1)


def covered(values: list[str], data: bytes) -> bytes:
    """The rule in its plainest form: what belongs to an occurrence goes, a `***` for each run of them."""
    runs: list[list[int]] = []
    spans = {span for value in values for form in forms(value) for span in spans_of(form, data)}
    for start, end in sorted(spans):
        if runs and start < runs[-1][1]:
            runs[-1][1] = max(end, runs[-1][1])
        else:
            runs.append([start, end])
    shown, last = b"", 0
    for start, end in runs:
        shown += data[last:start] + b"***"
        last = end
    return shown + data[last:]


places = st.lists(st.integers(0, 10_000), max_size=12)


@seeded
@given(case=cases(), places=places)
def test_a_stream_in_any_pieces_comes_out_as_the_rule_says(case, places):
    values, data = case
    mask = Mask(values)
    shown = b"".join([mask.feed(piece) for piece in cut(data, places)] + [mask.flush()])
    assert shown == covered(values, data) == Mask(values).mask_bytes(data)
    assert not [value for value in values if value.strip().encode("utf-8", "surrogatepass") in shown]


few = st.text("ab", min_size=5, max_size=16)


@seeded
@given(values=st.lists(few, min_size=1, max_size=4), data=st.text("ab", max_size=60), places=places)
@example(values=["ababa", "babab-longer-than-a-head"], data="ababab-longer-than-a", places=[3])
@example(values=["ababb", "aababbaba"], data="aababbab", places=[7])
def test_values_in_each_other_and_over_each_other(values, data, places):
    mask = Mask(values)
    shown = b"".join([mask.feed(piece) for piece in cut(data.encode(), places)] + [mask.flush()])
    assert shown == covered(values, data.encode()) == Mask(values).mask_bytes(data.encode())


@seeded
@given(case=cases(), places=places, pauses=st.lists(st.booleans(), min_size=14, max_size=14))
def test_pauses_show_no_whole_value(case, places, pauses):
    values, data = case
    mask = Mask(values)
    shown = b""
    for piece, pause in zip(cut(data, places), pauses, strict=False):
        shown += mask.feed(piece)
        if pause:
            shown += mask.flush()
            assert mask.held == 0
    shown += mask.flush()
    assert not [form for value in values for form in forms(value) if form in shown]


@seeded
@given(values=st.lists(secrets, max_size=4), data=st.binary(max_size=300), places=places)
def test_other_output_passes_byte_for_byte(values, data, places):
    mask = Mask(values)
    shown = b"".join([mask.feed(piece) for piece in cut(data, places)] + [mask.flush()])
    assert shown == covered(values, data)
    if not any(form in data for value in values for form in forms(value)):
        assert shown == data


@seeded
@given(values=secret_lists, text=st.text(max_size=60))
@example(values=["secret-value"], text="\ud83d \udc80")
def test_texts(values, text):
    mask = Mask(values)
    if not any(form in text.encode("utf-8", "surrogatepass") for value in values for form in forms(value)):
        assert mask.mask_text(text) == text
    assert values[0].strip() not in mask.mask_text(text + values[0] + text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("a-secret-value"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@seeded
@given(value=json_values)
def test_results(value):
    masked = Mask(["a-secret-value"]).mask_json({"x": value, "y": ["is a-secret-value."]})
    text = json.dumps({"x": value}, ensure_ascii=False)
    assert masked == {
        "x": json.loads(text.replace("a-secret-value", "***"))["x"],
        "y": ["is ***."],
    }


def test_keys_of_a_result_stay_apart():
    mask = Mask(["first-secret", "other-secret"])
    value = {"first-secret": 1, "other-secret": {"n": "first-secret"}, "***": 3, "a": None}
    assert mask.mask_json(value) == {"*** (2)": 1, "*** (3)": {"n": "***"}, "***": 3, "a": None}
    assert value["other-secret"] == {"n": "first-secret"}


NASTY = "p@ss 'w\"ör\\d/+?\tx"


@pytest.mark.parametrize(
    "written",
    [
        NASTY,
        json.dumps({"key": NASTY}),
        json.dumps([NASTY], ensure_ascii=False),
        repr({"key": NASTY}),
        ascii(NASTY),
        repr(NASTY.encode()),
        "https://host/?q=" + quote(NASTY),
        quote(NASTY, safe=""),
        quote(NASTY, safe="").lower(),
        quote_plus(NASTY),
        shlex.quote(NASTY),
        base64.b64encode(NASTY.encode()).decode(),
        base64.urlsafe_b64encode(NASTY.encode()).decode().rstrip("="),
    ],
)
def test_encodings(written):
    shown = Mask([NASTY]).mask_text(f"before {written} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "***" in shown
    # What is left is what stood around the value.
    assert len(shown) <= len("before *** after") + len('https://host/?q={"key": ""}')
    assert not any(part in shown for part in ("p@ss", "p%40ss", "rcGF", "cEBz"))


def test_base64_in_lines_of_76():
    value = "".join(chr(33 + number % 90) for number in range(200))
    text = base64.encodebytes(value.encode()).decode()
    assert Mask([value]).mask_text(text) == "***\n" * (text.count("\n"))


def test_lines_of_a_value_are_hidden_by_themselves():
    mask = Mask([KEY])
    lines = [f"[2026-12-01] {line}\r" for line in KEY.splitlines()]
    shown = mask.mask_text("\n".join(lines)).split("\n")
    assert shown == [*["[2026-12-01] ***\r"] * 3, "[2026-12-01] short\r", "[2026-12-01] ***\r"]
    assert mask.mask_text(f"<{KEY}>") == "<***\n>"
    assert mask.mask_text(json.dumps(KEY)) == '"***\\n"'


def test_white_space_around_a_value_is_no_part_of_it():
    assert Mask(["hunter2\n"]).mask_text("is hunter2, hunter2\nnext") == "is ***, ***\nnext"
    encoded = base64.b64encode(b"hunter2\n").decode()
    assert Mask(["hunter2\n"]).mask_text(encoded) == "***"


@pytest.mark.parametrize("short", ["", "abcd", "žž", "        ", " abc \n", "\x00"])
def test_short_values_are_not_hidden(short):
    mask = Mask([short])
    assert not mask
    data = f"abcd žž {short} {base64.b64encode(short.encode()).decode()}".encode()
    assert mask.feed(data) == data
    assert mask.mask_bytes(data) == data
    assert Mask([short, "abcde"])


def test_the_longest_value_wins_wherever_the_cut_is():
    data = b"<token-1><token-123><token-12>"
    for place in range(len(data)):
        mask = Mask(["token-1", "token-123"])
        shown = mask.feed(data[:place]) + mask.feed(data[place:]) + mask.flush()
        assert shown == b"<***><***><***2>"


def test_a_value_within_a_longer_one_does_not_let_its_beginning_go():
    mask = Mask(["hunter2", "user hunter2 of acme"])
    assert mask.feed(b"is user hunter2 of ") == b"is "
    assert mask.feed(b"acme") + mask.flush() == b"***"
    assert mask.feed(b" user hunter2 of ") + mask.flush() + mask.feed(b"acme") == b" user *** of ***"


def test_a_short_value_that_begins_a_long_one():
    mask = Mask(["token", "token-of-sixteen"])
    assert (mask.feed(b"token"), mask.feed(b"-of-sixteen"), mask.held) == (b"***", b"", 0)
    assert mask.mask_text("token-of-sixtee token-of-sixteen") == "***-of-sixtee ***"


def test_every_cut_through_a_long_value():
    value = b"a value of some length, longer than a head"
    for place in range(1, len(value)):
        mask = Mask([value.decode()])
        assert (mask.feed(value[:place]), mask.feed(value[place:])) == (b"", b"***")


def test_only_what_may_be_a_beginning_is_held():
    mask = Mask(["secret-value", "sesame"])
    assert mask.feed(b"Password: ") == b"Password: "
    assert (mask.feed(b"ok sec"), mask.held) == (b"ok ", 3)
    assert (mask.feed(b"ond se"), mask.held) == (b"second ", 2)
    assert (mask.feed(b"cret-value"), mask.held) == (b"***", 0)
    assert (mask.feed(b" secret"), mask.flush(), mask.held) == (b" ", b"secret", 0)
    assert (mask.flush(), mask.feed(b"-value.")) == (b"", b"***.")
    assert (mask.feed(b"sesa"), mask.flush(), mask.feed(b"mi")) == (b"", b"sesa", b"mi")


def test_values_come_while_the_stream_runs():
    mask = Mask(["secret-value"])
    assert mask.feed(b"renewed-value secret-") == b"renewed-value "
    mask.add(["renewed-value"])
    assert mask.feed(b"value renewed-value") == b"*** ***"


def test_a_value_without_end_needs_no_memory():
    mask = Mask(["aaaaaaaa"])
    shown = [mask.feed(b"a" * 1000) for _ in range(200)]
    assert b"".join(shown) == b"***"
    assert mask.held == 0
    assert mask.feed(b"b") == b"b"
