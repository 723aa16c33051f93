"""Keeping a job's credentials fresh: new ones are looked for from the middle of the old ones' life on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .claim import renewed_grant
from .console import say
from .grant import GrantFiles, expiry

_MIDDLE = 0.5
_SHARE_OF_LIFE = 0.02  # between two looks: 72 s for credentials of an hour
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 300.0


class Renewal:
    """A thread that follows a grant from renewal to renewal.

    fetch: gives the next grant, or `None` where there is none yet; it gets the present one.
    """

    def __init__(
        self,
        files: GrantFiles,
        grant: dict[str, object],
        fetch: Callable[[dict[str, object]], dict[str, object] | None],
        told: Callable[[dict[str, object]], None] = lambda grant: None,
    ) -> None:
        self._files = files
        self._grant = grant
        self._fetch = fetch
        self._told = told
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="raytenant-renewal", daemon=True)

    def start(self) -> None:
        """Begin; the thread never keeps a process from ending."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a look that is under way, a second at most."""
        self._over.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        taken = time.time()
        said = False
        while True:
            life = max(0.0, expiry(self._grant) - taken)
            now = time.time()
            pause = min(max(life * _SHARE_OF_LIFE, _SHORTEST_PAUSE), _LONGEST_PAUSE)
            middle = taken + life * _MIDDLE
            if self._over.wait(max(pause, middle - now)):
                return
            found = self._fetch(self._grant)
            if found is not None and expiry(found) > expiry(self._grant):
                self._take(found)
                taken, said = time.time(), False
            elif not said and time.time() > expiry(self._grant):
                said = True
                say("the job's credentials have expired, and no new ones have come; still looking for them")

    def _take(self, found: dict[str, object]) -> None:
        # A renewal holds no secrets: those of the ticket stay.
        grant = {**self._grant, **found}
        self._told(grant)
        try:
            self._files.write(grant)
        except OSError as error:
            say(f"the job's new credentials cannot be written: {error.strerror}")
        else:
            self._grant = grant


def by_address(grant: dict[str, object]) -> dict[str, object] | None:
    """The next grant from the address that the present one names."""
    url = grant.get("renewed_url")
    return renewed_grant(url) if isinstance(url, str) else None
