"""One job from submit to end: what the trigger does, and the worker where a task is not deferred.

:mod:`airflow_provider_raytenant.domain.lifecycle` says what comes next; this does it. The submit goes by the
try's own id, so it can be repeated: whoever comes second finds the job of the first. Being cancelled leaves
the job alone; stopping it is a decision of its own (:mod:`airflow_provider_raytenant.ray_api.stopping`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX, with_claim
from airflow_provider_raytenant.domain.lifecycle import (
    CheckSupervisor,
    End,
    Lifecycle,
    Limits,
    Look,
    Step,
    Stop,
    Submit,
    Wake,
    outage_pause,
)
from airflow_provider_raytenant.domain.outcome import Outcome, outcome_of
from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.domain.usage import OnOveruse
from airflow_provider_raytenant.exceptions import (
    JobNotFoundError,
    PackageLostError,
    RayAuthError,
    RayRequestError,
    RayTenantError,
    RayUnavailableError,
)
from airflow_provider_raytenant.ray_api.log_follower import MAX_BYTES, LogFollower
from airflow_provider_raytenant.ray_api.log_position import LogPosition, Save
from airflow_provider_raytenant.ray_api.packages import runner_package
from airflow_provider_raytenant.ray_api.shared import SharedCluster
from airflow_provider_raytenant.ray_api.stopping import JobStop
from airflow_provider_raytenant.ray_api.use_watch import UseTold, UseWatch
from airflow_provider_raytenant.runner.end_record import strip_end_record

_PACE = 1.0
"""All pauses are as many times as long; tests have no time."""


@dataclass(frozen=True)
class WatchSettings:
    """How to watch a job.

    :param limits: its deadlines, and how often to look.
    :param prepared_at: when its task began, in seconds since the epoch; ``0`` is not known.
    :param skip_on: exit codes that skip the task.
    :param needs_result: whether a job that did well must have its result, which stands in its log.
    :param on_overuse: what to do about a job that holds more than the footprint in its metadata.
    """

    limits: Limits = field(default_factory=Limits)
    prepared_at: float = 0.0
    skip_on: Sequence[int] = ()
    needs_result: bool = True
    on_overuse: OnOveruse = OnOveruse.WARN

    def to_json(self) -> dict[str, Any]:
        """For a trigger's arguments; :meth:`from_json` is the way back."""
        return {**asdict(self), "skip_on": list(self.skip_on), "on_overuse": self.on_overuse.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The settings that :meth:`to_json` gave."""
        own = {
            "limits": Limits(**data["limits"]),
            "skip_on": tuple(data["skip_on"]),
            # The trigger of an older version has none.
            "on_overuse": OnOveruse(data.get("on_overuse", OnOveruse.WARN)),
        }
        return cls(**{**data, **own})

    def limits_now(self) -> Limits:
        """The limits with what is left of ``execution_timeout`` at this moment."""
        total = self.limits.execution_timeout
        if total is None or not self.prepared_at:
            return self.limits
        return replace(self.limits, execution_left=total - (time.time() - self.prepared_at))


@dataclass(frozen=True)
class LogCopy:
    """How a job's output is copied into its task's log.

    :param max_bytes: of longer output only the last lines are copied.
    :param rest: where all of the output can be seen.
    :param load: how far an earlier watch of the same job has copied it.
    :param save: keeps how far this one has.
    """

    max_bytes: int = MAX_BYTES
    rest: str = ""
    load: Callable[[], Awaitable[LogPosition | None]] | None = None
    save: Save | None = None


class JobWatch:
    """Submits one request and follows its job to the end.

    :param cluster: the cluster, shared with whoever else watches a job there.
    :param request: the body of the submit, with the try's ``submission_id``.
    :param emit: gets each line of the job's output.
    :param note: gets what happens: status changes, outages.
    :param log: how to copy the output.
    :param adopt: the submission id of a job that is there already: it is followed, and nothing submitted.
    :param claim: gives, right before the submit, the address by which the job claims what it is granted.
    :param use: where to say what the job holds; default ``note``.
    """

    def __init__(
        self,
        cluster: SharedCluster,
        request: dict[str, Any],
        settings: WatchSettings,
        emit: Callable[[str], None],
        note: Callable[[str], None],
        log: LogCopy | None = None,
        adopt: str | None = None,
        claim: Callable[[], Awaitable[str]] | None = None,
        use: UseTold | None = None,
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._request = request
        self._settings = settings
        self._emit = emit
        self._note = note
        self._log = log or LogCopy()
        self._adopt = adopt
        self._claim = claim
        self._submission_id: str = adopt or request["submission_id"]
        self._life = Lifecycle(self._submission_id, settings.limits_now(), time.monotonic())
        self._stop = JobStop(self._client, self._submission_id)
        self._follower: LogFollower | None = None
        self._fresh = False
        self._use = UseWatch.of(
            settings.on_overuse, self._submission_id, cluster.usage, request, use or UseTold(note), note
        )

    async def run(self) -> Outcome:
        """Submit, or adopt what is there, and wait for the end.

        :raises RayUnavailableError: the dashboard gave no sound answer for the whole outage budget.
        :raises RayAuthError, RayRequestError: Ray refused the request.
        :raises PackageLostError: the job's code left the cluster before the submit.
        """
        step = self._life.begin(there=self._adopt is not None)
        try:
            while not isinstance(step, End):
                self._tell()
                step = await self._do(step)
            self._tell()
            outcome = await self._outcome(step)
            return replace(outcome, usage=self._usage(outcome.usage))
        finally:
            if self._follower is not None:
                await self._follower.cancel()
            if self._use is not None:
                await self._use.close()

    async def _do(self, step: Step) -> Step:
        try:
            match step:
                case Submit(after):
                    await _pause(after)
                    self._fresh = await self._submit()
                    return self._life.submitted(self._fresh, time.monotonic())
                case Look(after):
                    return await self._look(after)
                case Stop(after):
                    await _pause(after)
                    return await self._stop_and_look()
                case CheckSupervisor():
                    return self._life.supervisor(await self._supervisor_lives(), time.monotonic())
                case Wake():
                    with contextlib.suppress(RayTenantError):
                        await self._client.stop(self._submission_id)
                    return await self._look(0.0)
                case _:
                    raise TypeError(f"no step: {step!r}")
        except JobNotFoundError:
            return self._life.unknown(time.monotonic())
        except RayUnavailableError as error:
            return self._life.outage(error, time.monotonic())
        except (RayAuthError, RayRequestError) as error:
            if isinstance(step, Submit) and error.details.get("status") == 400:
                raise
            # The worker has just spoken to this dashboard: a proxy has lost it, or a token is being changed.
            # To fail now might leave a running job behind, so it counts as an outage.
            return self._life.outage(error, time.monotonic())

    async def _look(self, after: float) -> Step:
        after *= _PACE
        job = await self._cluster.poller.look(
            self._submission_id, earliest=0.75 * after, latest=after * random.uniform(1.0, 1.1)
        )
        if job.status is JobStatus.RUNNING:
            (await self._follow()).start(job.driver_node_id)
            if self._use is not None:
                self._use.saw(job, fresh=self._fresh)
        return self._life.saw(job, time.monotonic(), age=self._age(job.start_time))

    async def _stop_and_look(self) -> Step:
        await self._stop.step()
        job = self._stop.job
        if job is None:
            return self._life.unknown(time.monotonic())
        return self._life.saw(job, time.monotonic(), cannot_start=self._stop.cannot_start)

    async def _supervisor_lives(self) -> bool | None:
        try:
            return self._submission_id in await self._cluster.poller.supervisors()
        except RayTenantError:
            return None

    def _age(self, start_time: int | None) -> float:
        """Seconds since the submit at least. Ray's clock may be wrong, so ours has a word in it."""
        if not start_time or not self._settings.prepared_at:
            return 0.0
        now = time.time()
        return max(0.0, min(now - start_time / 1000, now - self._settings.prepared_at))

    async def _submit(self) -> bool:
        if not await self._pin_packages():
            return False
        if self._claim is None:
            return await self._client.submit(self._request)
        # A job that is there has been given its ticket; another one would never be claimed.
        if await self._is_known():
            return False
        return await self._client.submit(with_claim(self._request, await self._claim()))

    async def _pin_packages(self) -> bool:
        """See that the job's packages are on the cluster and stay there until it starts.

        ``False`` when one is missing, but the job is there already.
        """
        env = self._request.get("runtime_env", {})
        tenant = self._request.get("metadata", {}).get(METADATA_PREFIX + "tenant", "")
        uris = [env.get("working_dir", ""), *env.get("py_modules", [])]
        uris = [uri for uri in uris if uri.startswith("gcs://")]
        there = await asyncio.gather(*map(self._client.has_package, uris))
        for uri in [uri for uri, found in zip(uris, there, strict=True) if not found]:
            runner = runner_package(tenant)
            if uri == runner.uri:
                await self._client.put_package(uri, runner.content)
            elif await self._is_known():
                return False
            else:
                raise PackageLostError(
                    f"package {uri} of job {self._submission_id} is no longer on the cluster"
                )
        return True

    async def _is_known(self) -> bool:
        try:
            await self._client.job(self._submission_id)
        except JobNotFoundError:
            return False
        return True

    async def _outcome(self, end: End) -> Outcome:
        job = end.job
        if job is not None and job.status.is_terminal:
            follower = await self._follow()
            await follower.finish(job.driver_node_id)
            if job.status is JobStatus.SUCCEEDED and job.driver_node_id and follower.record is None:
                await self._find_record(follower, job.driver_node_id)
        if isinstance(end.error, RayUnavailableError):
            raise end.error
        if end.error is not None or job is None:
            return Outcome(self._submission_id, error=end.error)
        if job.status is JobStatus.SUCCEEDED and not self._settings.needs_result:
            return Outcome(self._submission_id)
        return outcome_of(
            replace(job, message=strip_end_record(job.message)),
            self._follower.record if self._follower is not None else None,
            deadline=self._settings.limits.of_runner,
            skip_on=self._settings.skip_on,
        )

    def _usage(self, ran: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """All that is known of the job's use; a task that wants no XComs gets none for its time alone."""
        peak = self._use.end() if self._use is not None else None
        if peak is None and (ran is None or not self._settings.needs_result):
            return None
        return {"submission_id": self._submission_id, **(peak or {}), **(ran or {})}

    async def _find_record(self, follower: LogFollower, node_id: str) -> None:
        """A job that did well is not run again because its log cannot be read for a while."""
        begun = time.monotonic()
        told = False
        while self._settings.needs_result and time.monotonic() - begun <= self._settings.limits.outage_budget:
            try:
                await follower.find_record(node_id)
                return
            except RayTenantError as error:
                if not told:
                    self._note(f"The job's result cannot be read just now ({error}); trying on.")
                told = True
            if not await self._may_answer(node_id):
                return
            await _pause(outage_pause(time.monotonic() - begun))

    async def _may_answer(self, node_id: str) -> bool:
        """Whether the log of a node may be read later: not if Ray is there, and the node is not."""
        try:
            return any(node.node_id == node_id for node in await self._client.nodes())
        except RayTenantError:
            return True

    async def _follow(self) -> LogFollower:
        """The follower of the job's output, which goes on where an earlier watch of the job has stopped."""
        if self._follower is None:
            log = self._log
            resume = None
            if log.load is not None and not self._fresh:
                resume = await log.load()
                if resume is None:
                    self._note("The job's output from its beginning; some of it may have been copied before.")
            self._follower = LogFollower(
                self._client,
                self._submission_id,
                self._emit,
                self._note,
                reads=self._cluster.reads,
                resume=resume,
                save=log.save,
                max_bytes=log.max_bytes,
                rest=log.rest,
            )
        return self._follower

    def _tell(self) -> None:
        notes, self._life.notes = self._life.notes, []
        for note in notes:
            self._note(note)


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds * _PACE * random.uniform(0.9, 1.1))
