"""When rounds happen, whatever the windows of the looks are."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.ray_api import agenda as agenda_module
from airflow_provider_raytenant.ray_api.agenda import EARLIEST_LEAN, Agenda, Look

Window = tuple[float, float]

instants = st.integers(0, 60).map(float)
windows = st.tuples(instants, st.integers(0, 20).map(float)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Futures want one; it never runs."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def look(loop: asyncio.AbstractEventLoop, window: Window) -> Look:
    return Look("j", *window, loop.create_future())


def play(agenda: Agenda, arrivals: list[tuple[float, Look]]) -> list[tuple[float, list[Look]]]:
    """The rounds, with their times, of looks that arrive at their time and rounds that take no time."""
    rounds = []
    coming = sorted(arrivals, key=lambda arrival: arrival[0])
    while coming or agenda:
        if coming and coming[0][0] <= agenda.next_round:
            agenda.add(coming.pop(0)[1])
            continue
        now = agenda.next_round
        rounds.append((now, agenda.take(now)))
    return rounds


def fewest_rounds(windows: list[Window]) -> int:
    """No plan needs fewer rounds than there are windows of which no two overlap."""
    count, end = 0, -math.inf
    for first, last in sorted(windows, key=lambda window: window[1]):
        if first > end:
            count, end = count + 1, last
    return count


@given(st.lists(st.tuples(instants, windows), max_size=40))
def test_every_look_is_taken_once_in_its_window(
    loop: asyncio.AbstractEventLoop, plans: list[tuple[float, Window]]
) -> None:
    looks = [(now, look(loop, (now + first, now + last))) for now, (first, last) in plans]
    rounds = play(Agenda(), looks)

    assert sorted(id(each) for _, taken in rounds for each in taken) == sorted(id(each) for _, each in looks)
    for now, taken in rounds:
        assert taken
        assert all(each.earliest <= now <= each.latest for each in taken)


@given(st.lists(windows, max_size=40))
def test_at_the_end_of_the_windows_no_plan_needs_fewer_rounds(
    loop: asyncio.AbstractEventLoop, plans: list[Window]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agenda_module, "EARLIEST_LEAN", 1.0)
        rounds = play(Agenda(), [(0.0, look(loop, window)) for window in plans])

    assert len(rounds) == fewest_rounds(plans)


@given(st.lists(windows, min_size=1, max_size=20), st.data())
def test_a_look_that_was_given_up_is_not_taken(
    loop: asyncio.AbstractEventLoop, plans: list[Window], data: st.DataObject
) -> None:
    agenda = Agenda()
    looks = [look(loop, window) for window in plans]
    for each in looks:
        agenda.add(each)
    gone = data.draw(st.lists(st.sampled_from(looks)))
    for each in gone:
        agenda.discard(each)
    taken = []
    while agenda.next_round < math.inf:
        taken += agenda.take(agenda.next_round)

    assert sorted(map(id, taken)) == sorted(id(each) for each in looks if each not in gone)


def test_a_round_waits_for_the_one_that_is_most_pressed(loop: asyncio.AbstractEventLoop) -> None:
    agenda = Agenda()
    calm, pressed, later = look(loop, (2, 60)), look(loop, (2, 3)), look(loop, (4, 5))
    for each in (calm, later, pressed):
        agenda.add(each)

    assert agenda.next_round == 3
    assert agenda.take(2.9) == []
    assert agenda.take(3) == [calm, pressed]
    assert agenda.next_round <= 5
    assert len(agenda) == 1


def test_rounds_of_the_same_windows_come_at_another_time_each(loop: asyncio.AbstractEventLoop) -> None:
    agenda = Agenda()
    begun, waits = 0.0, []
    for _ in range(30):
        for _ in range(5):
            agenda.add(look(loop, (begun + 4, begun + 6)))
        now = agenda.next_round
        assert len(agenda.take(now)) == 5
        waits.append(now - begun)
        begun = now

    assert len(set(waits)) == 30
    assert min(waits) >= 4 + 2 * EARLIEST_LEAN
    assert max(waits) <= 6
