"""Follows what one job holds, beside the watch of its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_raytenant.domain.job_info import JobInfo
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.usage import OnOveruse, Peak, UsageSample, declared_in, driver_in
from airflow_provider_raytenant.ray_api.usage import UsageSampler


@dataclass(frozen=True)
class UseTold:
    """Where to say what a job holds.

    :param warn: gets a line when the job holds more than it declared.
    :param load: what an earlier watch of the same job has saved; ``None`` for nothing. It must not raise.
    :param save: keeps the peak, as :meth:`UseWatch.end` gives it, whenever it has grown notably. It must not
        raise.
    """

    warn: Callable[[str], None]
    load: Callable[[], Awaitable[Any]] | None = None
    save: Callable[[dict[str, Any]], Awaitable[None]] | None = None


class UseWatch:
    """Takes in each new sample once. It waits for no sample, so it cannot hold up the job's own watch.

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
        self._loaded = told.load is None

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

    async def saw(self, job: JobInfo, *, fresh: bool) -> None:
        """The job runs: take in what is new of it, and have the next sample made if it is time.

        :param fresh: no other can have watched the job before.
        """
        self._loaded = self._loaded or fresh
        if job.ray_job_id is not None:
            # Ray names the last driver only, and a job may have several, one after the other.
            self._job_ids.add(job.ray_job_id)
            self._sampler.refresh()
            await self._load()
        self._take_in()
        if self._told.save is not None and self._peak.has_outgrown(self._saved):
            self._saved = self._peak.most
            await self._told.save(self._json())
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

    def _json(self) -> dict[str, Any]:
        return {"submission_id": self._submission_id, **self._peak.to_json()}

    async def _load(self) -> None:
        if self._loaded or self._told.load is None:
            return
        self._loaded = True
        before = await self._told.load()
        if before is None:
            return
        try:
            self._peak.go_on_from(before)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._note(f"What the job held before is not known ({error!r}).")
        else:
            self._saved = self._peak.most

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
