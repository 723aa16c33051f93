"""Follows what one job holds, beside the watch of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.usage import OnOveruse, Peak, UsageSample, declared_in, driver_in
from airflow_provider_raytenant.ray_api.usage import UsageSampler

LOAD_PATIENCE: Final = 10.0
"""Seconds to wait for what an earlier watch has saved. No sample is taken in meanwhile, or the same warning
might be said twice."""


@dataclass(frozen=True)
class UseTold:
    """Where to say what a job holds.

    :param warn: gets a line when the job holds more than it declared.
    :param load: what an earlier watch of the same job has saved; ``None`` for nothing. It must not raise.
    :param save: keeps the peak, as :meth:`UseWatch.end` gives it, whenever it has grown notably. It must not
        raise.
    """

    warn: Callable[[str], None]
    load: Callable[[], Coroutine[Any, Any, Any]] | None = None
    save: Callable[[dict[str, Any]], Coroutine[Any, Any, None]] | None = None


class UseWatch:
    """Takes in each new sample once. It waits for nothing, so it cannot hold up the job's own watch.

    :param submission_id: of the job.
    :param sampler: of its cluster.
    :param peak: of the job.
    :param note: gets what is no warning.
    """

    def __init__(
        self,
        submission_id: str,
        sampler: UsageSampler,
        peak: Peak,
        told: UseTold,
        note: Callable[[str], None],
    ) -> None:
        self._submission_id = submission_id
        self._sampler = sampler
        self._peak = peak
        self._told = told
        self._note = note
        self._job_ids: set[str] = set()
        self._last: UsageSample | None = None
        self._saved = Resources()
        self._complained = False
        self._knows_before = told.load is None
        self._loading: asyncio.Task[Any] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._patience_ends = 0.0

    @classmethod
    def of(
        cls,
        on_overuse: OnOveruse,
        submission_id: str,
        sampler: UsageSampler,
        request: Mapping[str, Any],
        told: UseTold,
        note: Callable[[str], None],
    ) -> Self | None:
        """The watch of a request's job; ``None`` where nobody wants one, or no footprint is declared."""
        declared = None if on_overuse is OnOveruse.IGNORE else declared_in(request)
        if declared is None:
            return None
        return cls(submission_id, sampler, Peak(declared, driver_in(request)), told, note)

    def saw(self, job: JobInfo, *, fresh: bool) -> None:
        """The job runs: take in what is new of it, and have the next sample made if it is time.

        :param fresh: no other can have watched the job before.
        """
        self._knows_before = self._knows_before or fresh
        if job.ray_job_id is not None:
            # Ray names the last driver only, and a job may have several, one after the other.
            self._job_ids.add(job.ray_job_id)
            self._sampler.refresh()
            self._load()
        if self._knows_before:
            self._take_in()
            self._save()
        if self._sampler.problem and not self._complained:
            self._complained = True
            self._note(f"What the job holds in Ray cannot be seen just now: {self._sampler.problem}")

    def end(self) -> dict[str, Any] | None:
        """The job has ended: note its peak, and return it as :meth:`Peak.to_json` gives it, beside the job's
        ``submission_id``. ``None`` where no sample has seen the job.
        """
        self._take_in()
        if not self._peak.samples:
            return None
        self._note(self._peak.summary())
        return self._json()

    async def close(self) -> None:
        """Give up what is under way: nothing is saved from here on."""
        tasks = [task for task in (self._loading, self._saving) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _json(self) -> dict[str, Any]:
        return {"submission_id": self._submission_id, **self._peak.to_json()}

    def _load(self) -> None:
        """Ask what was seen before; once that is known, go on from there."""
        if self._knows_before or self._told.load is None:
            return
        now = asyncio.get_running_loop().time()
        if self._loading is None:
            load = self._told.load()
            self._loading = asyncio.create_task(load, name=f"use of {self._submission_id} before")
            self._patience_ends = now + LOAD_PATIENCE
        if self._loading.done():
            self._knows_before = True
            self._go_on_from(self._loading.result())
        elif now >= self._patience_ends:
            self._knows_before = True
            self._note("What the job held before is not known: it takes too long to read.")

    def _go_on_from(self, before: Any) -> None:
        if before is None:
            return
        try:
            self._peak.go_on_from(before)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._note(f"What the job held before is not known ({error!r}).")
        else:
            self._saved = self._peak.most

    def _save(self) -> None:
        idle = self._saving is None or self._saving.done()
        if self._told.save is not None and idle and self._peak.has_outgrown(self._saved):
            self._saved = self._peak.most
            save = self._told.save(self._json())
            self._saving = asyncio.create_task(save, name=f"peak of {self._submission_id}")

    def _take_in(self) -> None:
        sample = self._sampler.newest
        if sample is None or sample is self._last:
            return
        held = sample.of(self._job_ids)
        if held is None:
            return
        self._last = sample
        warning = self._peak.add(held)
        if warning is not None:
            self._told.warn(
                f"The job holds more in Ray than it declared: {warning}. Its pool does not count the rest, "
                "so others may find no room: see the operator's `workers`."
            )
