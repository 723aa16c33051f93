"""One poller for all tasks that wait for jobs of one cluster.

Looks are gathered into rounds, one round at a time. A round asks for all of its jobs by one listing, or for
each by itself, whichever costs the dashboard less; so with many tasks the number of requests does not grow.
When the dashboard is away, one request finds that out for everybody.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Iterator
from functools import partial
from typing import Final

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.exceptions import (
    JobNotFoundError,
    RayRequestError,
    RayTenantError,
    RayUnavailableError,
)
from airflow_provider_raytenant.ray_api.agenda import Agenda, Look
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.listing import Listing
from airflow_provider_raytenant.ray_api.reading_cost import ReadingCost
from airflow_provider_raytenant.ray_api.shared_answer import SharedAnswer
from airflow_provider_raytenant.ray_api.waker import Waker

SINGLES_AT_ONCE: Final = 8
"""Single reads of a round that are under way at the same time."""

WITHOUT_LISTING: Final = 300.0
"""Seconds for which no listing is tried after one failed while single reads went well: it may be too long
for its time-out."""

_Wanted = dict[str, list[Look]]
"""The looks of a round that have no answer yet, by submission id."""


class JobPoller:
    """Reads jobs for everybody who waits for one; belongs to one event loop.

    :param client: an open client.
    """

    def __init__(self, client: RayClient) -> None:
        self._client = client
        self._agenda = Agenda()
        self._cost = ReadingCost()
        self._waker = Waker(client)
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self._outage = False
        self._no_listing_before = 0.0
        self._answers = 0
        self._supervisors = SharedAnswer(client.supervisors)
        self._closed = False

    async def look(self, submission_id: str, *, earliest: float = 0.0, latest: float = 0.0) -> JobInfo:
        """The job as it is at some moment from ``earliest`` to ``latest`` seconds from now.

        The wider this window, the more looks share a request. It is late only where the round before takes
        longer, as it does when the dashboard hangs.

        :raises JobNotFoundError: Ray does not know the job, neither in a listing nor by its id.
        :raises RayUnavailableError: no sound answer; everybody who waits for the same round gets this.
        :raises RayAuthError, RayRequestError: Ray, or a proxy before it, refused the request.
        """
        loop = self._usable_loop()
        now = loop.time()
        look = Look(submission_id, now + earliest, now + max(earliest, latest), loop.create_future())
        self._agenda.add(look)
        self._arrange()
        try:
            return await look.answer
        finally:
            self._agenda.discard(look)

    async def supervisors(self, max_age: float = 15.0) -> frozenset[str]:
        """Submission ids of the jobs whose supervisor lives, as it was at most ``max_age`` seconds ago.

        Everybody who asks meanwhile shares one request. Raises as :meth:`RayClient.supervisors` does.
        """
        self._usable_loop()
        return await self._supervisors.get(max_age)

    async def close(self) -> None:
        """End what is under way; looks that still wait get a :class:`RayUnavailableError`."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._settle(self._agenda.take_all(), self._farewell())
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])
        await self._supervisors.close()
        await self._waker.close()

    def _usable_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise RuntimeError("JobPoller is used after its end")
        return asyncio.get_running_loop()

    def _arrange(self) -> None:
        """Set the timer for the next round; while one is under way, its end does that."""
        if self._closed or self._round is not None or not self._agenda:
            return
        due = self._agenda.next_round
        if self._timer is not None:
            if self._timer.when() == due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._begin)

    def _begin(self) -> None:
        self._timer = None
        looks = self._agenda.take(asyncio.get_running_loop().time())
        if not looks:
            self._arrange()
            return
        wanted: _Wanted = {}
        for look in looks:
            wanted.setdefault(look.submission_id, []).append(look)
        self._round = asyncio.create_task(self._serve(wanted), name=f"look at {len(wanted)} Ray jobs")
        self._round.add_done_callback(partial(self._end, looks))

    def _end(self, looks: list[Look], task: asyncio.Task[None]) -> None:
        """What ended the round is the answer for everybody who has none yet."""
        self._round = None
        error = self._farewell() if task.cancelled() else task.exception()
        self._outage = error is not None
        if error is not None:
            self._waker.outage()
            self._settle(looks, error)
        self._arrange()

    async def _serve(self, wanted: _Wanted) -> None:
        listing = None
        if self._outage:
            await self._try_one(wanted)
        now = asyncio.get_running_loop().time()
        if now >= self._no_listing_before and self._cost.prefers_listing(len(wanted)):
            listing = await self._list(wanted)
        else:
            self._cost.read(len(wanted))
        await self._read_each(wanted)
        self._waker.answered(listing)

    async def _try_one(self, wanted: _Wanted) -> None:
        """After a round that failed: one read tells whether the others are worth a request.

        A random one: if the trouble is with one job alone, the others do not wait for it.
        """
        submission_id = random.choice(list(wanted))
        try:
            await self._read(wanted, submission_id)
        except RayUnavailableError:
            self._no_listing_before = 0.0
            raise

    async def _list(self, wanted: _Wanted) -> Listing:
        """Answer what one listing can; a job that it lacks is left for a read of its own."""
        try:
            listing = await self._client.listing()
        except RayUnavailableError:
            # Taken back if the next round shows that single reads fail as well.
            self._no_listing_before = asyncio.get_running_loop().time() + WITHOUT_LISTING
            raise
        self._cost.listed(listing.records)
        for submission_id in list(wanted):
            answer = listing.jobs.get(submission_id) or listing.unsound.get(submission_id)
            if answer is not None:
                self._settle(wanted.pop(submission_id), answer)
        return listing

    async def _read_each(self, wanted: _Wanted) -> None:
        """Read each job by itself, some at a time. The first failure ends the round, unless others went well
        meanwhile: then it is the trouble of that job alone.
        """
        waiting = iter(list(wanted))
        try:
            async with asyncio.TaskGroup() as readers:
                for _ in range(min(SINGLES_AT_ONCE, len(wanted))):
                    readers.create_task(self._read_some(wanted, waiting))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _read_some(self, wanted: _Wanted, waiting: Iterator[str]) -> None:
        for submission_id in waiting:
            before = self._answers
            try:
                await self._read(wanted, submission_id)
            except RayUnavailableError as error:
                if self._answers == before:
                    raise
                self._settle(wanted.pop(submission_id), error)

    async def _read(self, wanted: _Wanted, submission_id: str) -> None:
        if all(look.answer.done() for look in wanted[submission_id]):
            del wanted[submission_id]
            return
        answer: JobInfo | RayTenantError
        try:
            answer = await self._client.job(submission_id)
        except (JobNotFoundError, RayRequestError) as error:
            answer = error
        self._answers += 1
        self._settle(wanted.pop(submission_id), answer)

    def _settle(self, looks: list[Look], answer: JobInfo | BaseException) -> None:
        """Hand the answer to everybody who still waits; an error to each as one of their own."""
        for look in looks:
            if look.answer.done():
                continue
            if isinstance(answer, JobInfo):
                look.answer.set_result(answer)
                continue
            own = copy.copy(answer) if isinstance(answer, RayTenantError) else answer
            own.__cause__ = answer.__cause__
            look.answer.set_exception(own)

    def _farewell(self) -> RayUnavailableError:
        return RayUnavailableError(f"Ray at {self._client.endpoint.address}: its poller was closed")
