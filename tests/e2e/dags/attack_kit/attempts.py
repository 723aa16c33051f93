"""One attempt of a hostile job, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Attempt:
    """Something tried. ``act`` raises where it is refused, and where it finds nothing.

    :param open: why soft tenancy does not protect from it; empty for all that is to be refused.
    """

    what: str
    act: Callable[[], Any]
    open: str = ""

    def row(self) -> dict[str, str]:
        """What, the outcome, how it came about, and why it is open."""
        try:
            found = self.act()
        except Exception as error:  # noqa: BLE001 - whatever refuses it
            return self._row("refused", _short(error))
        return self._row("done", f"{type(found).__name__}")

    def _row(self, outcome: str, how: str) -> dict[str, str]:
        return {"what": self.what, "outcome": outcome, "how": how, "open": self.open}


def _short(error: Exception) -> str:
    """A code, never a text: a text might hold what must not be printed."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code"))
    code = getattr(error, "code", None)
    return f"{type(error).__name__} {code if code is not None else str(error)[:60]}".strip()
