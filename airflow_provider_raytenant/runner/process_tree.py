"""Which processes belong to the runner, as /proc tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable


class _Process:
    __slots__ = ("group", "parent", "started", "state")

    def __init__(self, state: str, parent: int, group: int, started: int) -> None:
        self.state = state
        self.parent = parent
        self.group = group
        self.started = started


class ProcessTree:
    """The runner's descendants and its process group, but for the runner itself.

    The group counts only where the runner leads it (Ray starts each job in a session of its own): in any
    other group there may be strangers. A process once seen stays known after its parent died and it passed
    to process 1, even in a session of its own.

    Without a Linux /proc the tree is the one process `child`.
    """

    def __init__(self, child: int, proc: str = "/proc") -> None:
        self._child = child
        self._proc = proc
        self._known: dict[int, int] = {}  # pid to start time: a pid may be given to a stranger later

    def living(self) -> set[int]:
        """The pids that are there now; zombies do not count."""
        table = self._table()
        if os.getpid() not in table:
            return {self._child} if _answers(self._child) else set()
        family = _descendants(table, {os.getpid(), *self._roots(table)})
        self._known = {pid: table[pid].started for pid in family}
        return {pid for pid in family if table[pid].state not in "ZX"}

    def send(self, number: int, pids: Iterable[int]) -> None:
        """Send the signal to each that still is there and may be signalled."""
        for pid in pids:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue

    def _roots(self, table: dict[int, _Process]) -> set[int]:
        me = os.getpid()
        roots = {
            pid for pid, started in self._known.items() if pid in table and table[pid].started == started
        }
        if os.getpgrp() == me:
            roots |= {pid for pid, process in table.items() if process.group == me}
        return roots

    def _table(self) -> dict[int, _Process]:
        table: dict[int, _Process] = {}
        try:
            names = os.listdir(self._proc)
        except OSError:
            return table
        for name in names:
            if name.isdigit():
                try:
                    with open(f"{self._proc}/{name}/stat", "rb") as file:
                        table[int(name)] = _parse(file.read())
                except (OSError, ValueError, IndexError):  # it ended while we looked, or is no Linux /proc
                    continue
        return table


def _parse(line: bytes) -> _Process:
    # proc(5): the name, field 2, may itself hold spaces and brackets; state is field 3, starttime field 22.
    fields = line[line.rindex(b")") + 1 :].decode("ascii").split()
    return _Process(fields[0], int(fields[1]), int(fields[2]), int(fields[19]))


def _descendants(table: dict[int, _Process], roots: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    family: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in family:
            family.add(pid)
            waiting += children.get(pid, [])
    return family - {os.getpid()}


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
