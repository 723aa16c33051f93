"""An act: faults that are tried side by side, each in a thread of its own, with one verdict each."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from airflow_provider_raytenant.local.errors import RequestRefused
from stack.fault_proxy import FaultProxy
from stack.rest import AirflowApi
from tests.faults.report import Row
from tests.faults.world import Run, World, until

SETTLES = 60.0
"""Seconds after a fault's scene within which everything must be in its place."""


class Fault:
    """One fault: the runs that meet it, and how long it took until all was well again."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.runs: list[Run] = []
        self._numbers = itertools.count()
        self._hurt: float | None = None
        self.seconds: float | None = None

    @property
    def api(self) -> AirflowApi:
        return self.world.api

    @property
    def proxy(self) -> FaultProxy:
        return self.world.proxy

    def run(
        self,
        dag_id: str,
        *,
        ends: str = "success",
        starts: tuple[int, ...] = (1,),
        conf: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start a run; see :class:`Run` for what it must come to."""
        words = "".join(letter if letter.isalnum() else "-" for letter in self.name)
        run = Run(self.world, f"{words}.{next(self._numbers)}", dag_id, conf)
        run.ends, run.starts = ends, starts
        self.runs.append(run)
        return run

    def hurt(self) -> None:
        """The fault happens now, or, where it lasts, ends now."""
        self._hurt = time.monotonic()

    def well(self) -> None:
        """All is as it should be."""
        self.seconds = None if self._hurt is None else time.monotonic() - self._hurt

    def judge(self) -> Row:
        """Wait until every run has settled, and count what went wrong."""
        with contextlib.suppress(AssertionError):
            until(lambda: all(run.is_settled() for run in self.runs), "", SETTLES)
        tries = sum(max(run.tries, 1) for run in self.runs)
        duplicates = sum(len(run.started()) - len(set(run.started())) + run.overlaps() for run in self.runs)
        lost = sum(run.state != run.ends for run in self.runs)
        try:
            orphans = sum(run.orphans() for run in self.runs)
        except (OSError, RequestRefused):
            # Ray did not come back.
            orphans, lost = 0, len(self.runs)
        return Row(self.name, tries, duplicates, orphans, lost, self.seconds)


class Act:
    """The faults of one test module."""

    def __init__(self) -> None:
        self._scenes: dict[str, Callable[[Fault], None]] = {}
        self._barriers: dict[str, threading.Barrier] = {}

    @property
    def names(self) -> list[str]:
        return list(self._scenes)

    def fault(self, name: str) -> Callable[[Callable[[Fault], None]], Callable[[Fault], None]]:
        """Declare a scene: it brings a fault about and waits until its task has got over it."""

        def declare(scene: Callable[[Fault], None]) -> Callable[[Fault], None]:
            self._scenes[name] = scene
            return scene

        return declare

    def blow(self, name: str, parties: int, strike: Callable[[], None]) -> Callable[[], None]:
        """What several scenes wait for: when all are ready, ``strike`` is done once.

        A scene that fails before breaks the blow for the others, which fail as well.
        """
        barrier = self._barriers[name] = threading.Barrier(parties, action=strike)

        def wait() -> None:
            barrier.wait(timeout=180.0)

        return wait

    @contextmanager
    def play(self, world: World) -> Iterator[Mapping[str, Future[None]]]:
        """Play all scenes; the verdict on each is the result of its future."""
        world.report.announce(self._scenes)
        with ThreadPoolExecutor(len(self._scenes), thread_name_prefix="fault") as stage:
            yield {name: stage.submit(self._scene, world, name) for name in self._scenes}
        until(lambda: not world.strays(), "an end without live jobs of dead tasks", SETTLES)

    def _scene(self, world: World, name: str) -> None:
        fault = Fault(world, name)
        begun = time.monotonic()
        try:
            self._scenes[name](fault)
        except BaseException:
            for barrier in self._barriers.values():
                barrier.abort()
            for run in fault.runs:
                run.release()
            raise
        finally:
            row = fault.judge()
            world.report.add(row)
            print(f"{name}: {time.monotonic() - begun:.1f} s, {row}")
        told = "\n".join(run.told() for run in fault.runs)
        assert (row.duplicates, row.orphans, row.lost) == (0, 0, 0), told
        for run in fault.runs:
            assert len(run.started()) in run.starts, told
