"""What each fault led to, as a table."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("fault", "tries", "duplicates", "orphans", "lost", "seconds to recover")


@dataclass(frozen=True)
class Row:
    """One line of the table; ``seconds`` is None where the fault was not recovered from."""

    fault: str
    tries: int
    duplicates: int
    orphans: int
    lost: int
    seconds: float | None

    def cells(self) -> list[str]:
        seconds = "-" if self.seconds is None else f"{self.seconds:.1f}"
        return [self.fault, *map(str, (self.tries, self.duplicates, self.orphans, self.lost)), seconds]


class Report:
    """The rows of this session, in the order in which their faults were announced; threads may add to it."""

    def __init__(self) -> None:
        self._rows: dict[str, Row | None] = {}
        self._lock = threading.Lock()

    def announce(self, faults: Iterable[str]) -> None:
        """These come next, all at a time."""
        with self._lock:
            self._rows |= dict.fromkeys(faults)

    def add(self, row: Row) -> None:
        with self._lock:
            self._rows[row.fault] = row

    def text(self) -> list[str]:
        """The table for a terminal, one text a line; empty if no fault was tried."""
        rows = [row.cells() for row in self._rows.values() if row]
        return _aligned(rows) if rows else []

    def write(self, path: Path) -> None:
        """The table as Markdown."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [row.cells() for row in self._rows.values() if row]
        lines = [COLUMNS, ["---", *["---:"] * (len(COLUMNS) - 1)], *rows]
        path.write_text("".join(f"| {' | '.join(cells)} |\n" for cells in lines))


def _aligned(rows: Iterable[list[str]]) -> list[str]:
    table = [list(COLUMNS), *rows]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(COLUMNS))]
    return [
        "  ".join(
            [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
        )
        for cells in table
    ]
