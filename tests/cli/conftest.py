from __future__ import annotations

from tests.fakes.doctor import patient
from tests.fakes.world import world

__all__ = ["patient", "world"]
