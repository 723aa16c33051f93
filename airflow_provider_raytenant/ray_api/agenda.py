"""When to look at which jobs: the part of the poller that needs no clock and no network."""

from __future__ import annotations

import math
import random
from asyncio import Future
from dataclasses import dataclass
from typing import Final

from airflow_provider_raytenant.domain.job_info import JobInfo

EARLIEST_LEAN: Final = 0.5
"""A round happens in the second half of the window of whoever is most pressed, at a point drawn anew for
each round: so two triggerers that began together do not go on asking together."""


@dataclass(eq=False, slots=True)
class Look:
    """One waiting look. It may happen from ``earliest`` to ``latest``, seconds of the event loop's clock."""

    submission_id: str
    earliest: float
    latest: float
    answer: Future[JobInfo]


class Agenda:
    """The looks that wait, and the time of the next round.

    A round takes every look whose window is open, not only the one that was due; without the lean (at 1.0)
    no plan needs fewer rounds for the same windows.
    """

    def __init__(self) -> None:
        self._looks: dict[Look, None] = {}
        self._lean = 1.0
        self.next_round = math.inf
        """When the next round is due, at the latest; infinity when nobody waits."""

    def __len__(self) -> int:
        return len(self._looks)

    def add(self, look: Look) -> None:
        self._looks[look] = None
        self.next_round = min(self.next_round, self._due(look))

    def discard(self, look: Look) -> None:
        """The look is no longer wanted. The next round's time stays; it may turn out that nothing is due."""
        self._looks.pop(look, None)

    def take(self, now: float) -> list[Look]:
        """Remove and return the looks of a round at ``now``: if one is due, all whose window is open."""
        taken: list[Look] = []
        if any(self._due(look) <= now for look in self._looks):
            taken = [look for look in self._looks if look.earliest <= now]
            for look in taken:
                del self._looks[look]
            self._lean = random.uniform(EARLIEST_LEAN, 1.0)
        self.next_round = min(map(self._due, self._looks), default=math.inf)
        return taken

    def take_all(self) -> list[Look]:
        """Remove and return every look."""
        taken = list(self._looks)
        self._looks.clear()
        self.next_round = math.inf
        return taken

    def _due(self, look: Look) -> float:
        return look.earliest + self._lean * (look.latest - look.earliest)
