"""The dashboard's answers go wrong: dropped, late, hung, cut, replaced by a proxy's page, doubled, false."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from stack.fault_proxy import Effect, Hold, Rule, close_early, duplicate, unreachable
from tests.fakes import faults
from tests.faults.acts import Act, Fault
from tests.faults.world import World, until

ACT = Act()
SUBMIT = r"^/api/jobs/$"
POLL = r"^/api/jobs/[^/]*$"


@pytest.fixture(scope="module")
def verdicts(world: World) -> Iterator[Mapping[str, Future[None]]]:
    with ACT.play(world) as futures:
        yield futures


def submit(name: str, lane: str, effect: Effect, times: int = 1) -> None:
    """A fault that befalls the first submits of a lane: one job starts all the same, once."""

    @ACT.fault(name)
    def scene(fault: Fault) -> None:
        rule = fault.proxy.add(Rule(effect, "POST", SUBMIT, lane, times=times))
        run = fault.run(lane)
        assert rule.wait_struck(90), run.told()
        fault.hurt()
        run.wait_started()
        fault.well()
        until(lambda: rule.hits == times, f"the submits of {name}", 60, run.told)
        run.release()
        run.wait_state("success")


def poll(name: str, lane: str, effect: Effect, looks: int) -> None:
    """A fault that befalls every look at jobs of a lane for a while, in which the job ends."""

    @ACT.fault(name)
    def scene(fault: Fault) -> None:
        run = fault.run(lane)
        run.wait_started()
        rule = fault.proxy.add(Rule(effect, "GET", POLL, lane))
        run.release()
        until(lambda: rule.hits >= looks, f"{looks} looks of {name}", 120, run.told)
        assert run.state == "deferred"
        rule.lift()
        fault.hurt()
        run.wait_state("success")
        fault.well()


submit("submit: connection breaks before it arrives, three times", "submit-refused", unreachable, 3)
submit("submit: answer lost after it took effect", "submit-lost", faults.lose_answer)
submit("submit: answer comes after the client gave up", "submit-late", faults.delay(20))
submit("submit: hangs", "submit-hung", Hold(forwarded=False))
submit("submit: answer cut off in its JSON", "submit-cut", faults.truncate)
submit("submit: 502 with an HTML page, three times", "submit-html", faults.status(502), 3)
submit("submit: arrives twice", "submit-twice", duplicate)
submit("submit: 'already exists', but nothing is there, twice", "submit-exists", faults.already_exists, 2)

poll("polls: connection breaks", "polls-refused", unreachable, 8)
poll("polls: hang", "polls-hung", Hold(forwarded=False), 2)
poll("polls: answers cut off in their JSON", "polls-cut", faults.truncate, 8)
poll("polls: 502 with an HTML page", "polls-html", faults.status(502), 8)


@ACT.fault("polls: each answer comes 4 s late")
def late(fault: Fault) -> None:
    rule = fault.proxy.add(Rule(faults.delay(4), "GET", POLL, "polls-late"))
    run = fault.run("polls-late")
    run.wait_started()
    seen = rule.hits
    until(lambda: rule.hits >= seen + 2, "two late looks", 60, run.told)
    fault.hurt()
    run.release()
    run.wait_state("success")
    fault.well()


@ACT.fault("log stream: closed after each second")
def tails(fault: Fault) -> None:
    rule = fault.proxy.add(Rule(close_early(1.0), "GET", "/logs/tail$", "tails-early"))
    run = fault.run("tails-early")
    until(lambda: rule.hits >= 3, "three log streams", 90, run.told)
    rule.lift()
    fault.hurt()
    run.release()
    run.wait_state("success")
    fault.well()
    numbers = [int(number) for number in re.findall(r"^line (\d+)$", run.log(), re.MULTILINE)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 3


@pytest.mark.parametrize("name", ACT.names)
def test_it_is_got_over(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
