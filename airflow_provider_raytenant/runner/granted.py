"""A job with a claim: what it was granted is there while its entrypoint runs, and gone afterwards."""

from __future__ import annotations

import os
from types import TracebackType

from .claim import claim_grant
from .console import hide
from .grant import GrantFiles, remove_left_behind, values_to_mask
from .masking import Mask
from .renewal import Renewal, by_address
from .ticket import SUBMISSION_ID_VARIABLE


class Granted:
    """Claims when it is made, removes on exit. Raises NoClaim, or OSError where nothing can be written.

    mask: hides what was granted in all that the job writes.
    """

    def __init__(self, url: str) -> None:
        self._grant = claim_grant(url)
        remove_left_behind()
        self._files = GrantFiles.make(os.environ[SUBMISSION_ID_VARIABLE])
        try:
            self._files.write(self._grant)
        except BaseException:
            self._files.remove()
            raise
        self.mask = Mask(values_to_mask(self._grant))
        hide(self.mask.mask_text)
        self._renewal = Renewal(self._files, self._grant, by_address, told=self._hide_more)
        self._renewal.start()

    def __enter__(self) -> Granted:
        return self

    def apply(self, environment: dict[str, str]) -> None:
        """Put credentials and secrets into the environment of the entrypoint."""
        self._files.apply(environment, self._grant)

    def _hide_more(self, grant: dict[str, object]) -> None:
        self.mask.add(values_to_mask(grant))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._renewal.stop()
        self._files.remove()
