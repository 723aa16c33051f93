"""The dashboard's answers go wrong: dropped, late, hung, cut, replaced by a proxy's page, doubled, false."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest
from aiohttp import web

from stack.fault_proxy import Effect, Forward, Hold, Rule, duplicate, unreachable
from tests.fakes import faults
from tests.faults.acts import Act, Fault
from tests.faults.world import World, until

ACT = Act()
SUBMIT = r"^/api/jobs/$"
POLL = r"^/api/jobs/[^/]*$"
LOG = r"^/api/v0/logs/file|^/api/jobs/[^/]+/logs"


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


@ACT.fault("log: readings break off, are cut short, are a 502 page")
def log(fault: Fault) -> None:
    ways = itertools.cycle((faults.break_off, faults.truncate, faults.status(502)))

    async def broken(request: web.Request, forward: Forward) -> web.StreamResponse:
        return await next(ways)(request, forward)

    rule = fault.proxy.add(Rule(broken, "GET", LOG, "logs-cut"))
    run = fault.run("logs-cut")
    run.wait_started()
    seen = rule.hits
    until(lambda: rule.hits >= seen + 6, "six readings of the log", 90, run.told)
    rule.lift()
    fault.hurt()
    run.release()
    run.wait_state("success")
    fault.well()
    (printed,) = run.printed()
    assert printed
    assert run.lines() == list(range(printed))


@ACT.fault("cleared while its DAG is paused, and no controller runs")
def cleared_without_controller(fault: Fault) -> None:
    run = fault.run("paused", starts=(2,))
    run.wait_started()
    run.wait_state("deferred")
    fault.api.pause("paused")
    fault.hurt()
    fault.api.clear("paused", run.run_id)
    run.wait_stopped(timeout=120)
    fault.well()
    assert run.state is None
    fault.api.unpause("paused")
    run.wait_started(2)
    run.release()
    run.wait_state("success")


@pytest.mark.parametrize("name", ACT.names)
def test_it_is_got_over(verdicts: Mapping[str, Future[None]], name: str) -> None:
    verdicts[name].result()
