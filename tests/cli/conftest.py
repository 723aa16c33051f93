from __future__ import annotations

from tests.fakes.world import world

__all__ = ["world"]
