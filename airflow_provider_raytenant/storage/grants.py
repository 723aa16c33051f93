"""What one job is granted, from its submit to its end: issued once, renewed in time, taken back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.lifecycle import outage_pause
from airflow_provider_raytenant.exceptions import RayTenantError, RayUnavailableError, StorageUnavailableError
from airflow_provider_raytenant.storage.tickets import TicketOffice

UNKNOWN_LIFE: Final = 30.0
"""Seconds after which credentials are renewed that somebody else has issued: when they end is not known."""

_LONGEST_PAUSE: Final = 60.0
_T = TypeVar("_T")


class JobGrant:
    """Credentials and secrets of one job.

    :param access: which.
    :param lookup: gives the values of its secrets; it may block.
    :param note: gets what happens, for the task's log.
    :param patience: seconds to go on for where the storage gives no sound answer.
    """

    def __init__(
        self,
        access: Access,
        lookup: Callable[[], Mapping[str, str]],
        note: Callable[[str], None],
        patience: float,
    ) -> None:
        self._office = TicketOffice(access)
        self._lookup = lookup
        self._note = note
        self._patience = patience
        self._issued = asyncio.Event()

    async def issue(self) -> str:
        """The URL by which the job's runner claims its ticket.

        :raises SecretNotFoundError: Airflow does not know one of the secrets.
        :raises ConnectionConfigError, StorageDeniedError: the role cannot be had.
        :raises StorageUnavailableError: there was no sound answer for the whole patience.
        """
        secrets = await asyncio.to_thread(self._lookup)
        begun = time.monotonic()
        told = False
        while True:
            try:
                url = await asyncio.to_thread(self._office.issue, secrets)
            except StorageUnavailableError as error:
                passed = time.monotonic() - begun
                if passed > self._patience:
                    raise
                if not told:
                    self._note(f"{error}. Trying for {self._patience:g} s.")
                told = True
                await asyncio.sleep(outage_pause(passed))
            else:
                self._issued.set()
                return url

    async def while_it_runs(self, watch: Awaitable[_T]) -> _T:
        """Keep the job's credentials fresh while it is watched, and take them back at its end.

        Whoever watches it and is cancelled leaves the job, and all that it needs, to the next.
        """
        keep = asyncio.create_task(self._keep(), name="renewal of a job's credentials")
        try:
            ended = await watch
        except RayUnavailableError:
            # It may live: nobody knows.
            raise
        except RayTenantError:
            await self.withdraw()
            raise
        finally:
            keep.cancel()
            await asyncio.wait([keep])
        await self.withdraw()
        return ended

    async def withdraw(self) -> None:
        """Remove from the storage what the job has left there. A failure is noted: all of it expires."""
        try:
            await asyncio.to_thread(self._office.withdraw)
        except RayTenantError as error:
            self._note(f"{error}; its credentials expire by themselves.")

    async def _keep(self) -> None:
        # Not `wait_for`, which loses a cancellation in Python 3.11 when what it waits for has just come.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNKNOWN_LIFE):
                await self._issued.wait()
        while True:
            credentials = self._office.credentials
            if credentials is not None:
                await asyncio.sleep(max(0.0, credentials.seconds_left / 2))
            await self._renew()

    async def _renew(self) -> None:
        failed = 0
        while True:
            try:
                await asyncio.to_thread(self._office.renew)
            except RayTenantError as error:
                if not failed:
                    self._note(f"The job's credentials cannot be renewed ({error}); trying on.")
                await asyncio.sleep(min(_LONGEST_PAUSE, 2.0**failed))
                failed += 1
            else:
                if failed:
                    self._note("The job's credentials are renewed again.")
                return
