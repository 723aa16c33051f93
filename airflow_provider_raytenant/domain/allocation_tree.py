"""The members while slots are handed out: pools as leaves, tenants as branches, the group as the root.

Who gets the next free slots is found from the top down, at every level by the lowest
:func:`~airflow_provider_raytenant.domain.water_level.key`; a task is taken whole, or not at all.

A controller runs this for thousands of pools every few seconds, so what runs for every pool is written out
where a call of ``min``, a common constructor or an abstract base would be shorter.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from airflow_provider_raytenant.domain.water_level import Part, held_at, key, level_of


class Node:
    """What leaves and branches share; all amounts in slots."""

    weight: float
    guarantee: int
    limit: int
    held: int
    """Occupied, or granted now."""
    waiting: int
    """What tasks still ask for."""
    demand: int
    """What it may come to hold."""
    first_for: float
    key: float
    parent: Branch | None = None

    owed = 0
    """Waiting tasks that are wholly within the guarantee. Larger ones have no claim, or two of them would
    keep slots from each other for ever."""
    target: int
    """What it should hold in the end, without the star."""
    star = 0
    """A task that slots are kept for until it fits."""
    reserved = 0
    """What is kept for a task now."""
    lack = 0
    """How far members below are short of their targets, whatever others hold above theirs."""
    over = 0
    """What may drain."""
    must = 0
    """What has to drain for limits, and for what is lacking below."""
    headroom = 0
    """Slots beyond all that is held and granted."""

    @property
    def room(self) -> int:
        """Slots that it may still get; below 0 where it is above its limit."""
        return self.limit - self.held - self.reserved

    @property
    def promise(self) -> int:
        """What it may claim by its guarantee: held already, or owed."""
        return min(self.guarantee, self.limit, self.held) + self.owed

    def whole_tasks(self, space: int) -> int:
        """Slots of waiting tasks that fit into ``space`` together, taken in order."""
        raise NotImplementedError

    def reckon(self) -> None:
        """Bring up to date what follows from ``held``."""
        held, guarantee = self.held, self.guarantee
        if held >= guarantee:
            self.key, self.owed = (held - guarantee) / self.weight, 0
            return
        self.key = key(held, guarantee, self.weight)
        space = min(guarantee, self.limit) - held
        self.owed = self.whole_tasks(space) if self.waiting and space > 0 else 0

    def gain(self, slots: int) -> None:
        """Tasks of this many slots were granted."""
        self.held += slots
        self.waiting -= slots
        before = self.owed
        self.reckon()
        if before and self.parent is not None:
            self.parent.owing += self.owed - before

    def path(self) -> Iterator[Branch]:
        """The branches above it, up to the root."""
        branch = self.parent
        while branch is not None:
            yield branch
            branch = branch.parent


class Leaf(Node):
    """A pool. ``queue`` has its waiting tasks' slots in start order, less those that can never fit."""

    position = 0
    """How far into the queue this round has come."""
    skipped: Sequence[int] = ()
    """What it passed over."""
    last = 0
    """Slots of the task that was granted last."""
    next_wanted = 0
    """How far into the queue the target has come."""
    drained = 0
    takes_headroom = True

    def __init__(
        self,
        name: str,
        weight: float,
        guarantee: int,
        limit: int,
        occupied: int,
        queue: Sequence[int],
        first_for: float,
    ) -> None:
        self.name, self.weight, self.guarantee, self.limit = name, weight, guarantee, limit
        self.held = self.occupied = occupied
        self.queue, self.first_for = queue, first_for
        self.waiting = waiting = sum(queue) if queue else 0
        demand = occupied + waiting
        self.demand = self.target = demand if demand < limit else limit
        self.reckon()

    @property
    def size(self) -> int:
        """The size of the pool."""
        return self.held - self.drained + self.headroom

    @property
    def first(self) -> int:
        """Slots of the first waiting task; 0 where none waits."""
        return self.queue[0] if self.queue else 0

    def whole_tasks(self, space: int) -> int:
        left = space
        tasks: Iterable[int] = self.queue
        if self.position:
            tasks = itertools.chain(self.skipped, itertools.islice(self.queue, self.position, None))
        for slots in tasks:
            if slots <= left:
                left -= slots
                if not left:
                    break
        return space - left

    def grant(self, room: int, entitled: bool, report: bool) -> Leaf | None:
        """Take the next task that fits; ``last`` is its slots. ``None`` where none fits.

        Room never grows within a round, so a task that did not fit is not looked at again.

        :param entitled: take only what is within the target.
        :param report: stop at a task within the target that does not fit, with 0 in ``last``.
        """
        room = min(room, self.room)
        within = self.target - self.held if entitled else room
        while self.position < len(self.queue):
            slots = self.queue[self.position]
            self.position += 1
            if slots <= room and slots <= within:
                self.last = slots
                self.gain(slots)
                if not self.skipped:
                    self.first_for = 0.0
                return self
            self.skipped = [*self.skipped, slots]
            if report and room < slots <= within:
                self.last = 0
                return self
        return None

    def grant_lack(self, space: int) -> int:
        """Take what is within the target, up to ``space`` slots; the slots taken."""
        before, rest = space, list[int]()
        for place, slots in enumerate(self.queue):
            if slots <= space:
                space -= slots
                if not rest:
                    self.first_for = 0.0
                if not space:
                    rest += self.queue[place + 1 :]
                    break
            else:
                rest.append(slots)
        self.queue = rest
        granted = before - space
        self.lack -= granted
        self.gain(granted)
        return granted

    def advance(self, room: int) -> int:
        """Add a slot that is held, or else the next waiting task that fits, to the target; its slots or 0."""
        room = min(room, self.limit - self.target - self.star)
        if self.target < self.held:
            slots = min(1, room)
            self.target += slots
            return slots
        while self.next_wanted < len(self.queue):
            slots = self.queue[self.next_wanted]
            self.next_wanted += 1
            if slots <= room:
                self.target += slots
                return slots
        return 0

    def end_round(self) -> None:
        """What did not fit waits on, in its old order."""
        if self.position:
            self.queue = [*self.skipped, *self.queue[self.position :]]
            self.position, self.skipped = 0, ()

    def could_start(self) -> bool:
        """Whether the first task fits beside what is promised to others, once the rest has drained."""
        first = self.queue[0]
        node: Node = self
        for branch in self.path():
            if first > branch.limit - branch.promises + node.promise:
                return False
            node = branch
        return True

    def take_first(self) -> None:
        """Grant the first task, out of its turn."""
        slots, self.queue = self.queue[0], self.queue[1:]
        self.first_for = 0.0
        self.gain(slots)
        for branch in self.path():
            branch.gain(slots)

    def keep_for_first(self) -> None:
        """Keep slots for the first task, here and above, until it fits."""
        self.star, self.queue = self.queue[0], self.queue[1:]
        self.keep(self.star)
        for branch in self.path():
            branch.star, branch.first_for = self.star, self.first_for

    def keep(self, slots: int) -> None:
        """Nobody else gets these slots; only so many as limits let the task have now."""
        kept = min(slots, max(0, self.limit - self.held))
        self.reserved = kept
        for branch in self.path():
            kept = min(kept, max(0, branch.limit - branch.held))
            branch.reserved = kept

    def open_room(self) -> int:
        """Slots that a task of this pool could have now, by the limits and promises all the way up."""
        room = self.room
        node: Node = self
        for branch in self.path():
            room = min(room, branch.room_for(node, branch.room))
            node = branch
        return room


class Branch(Node):
    """Members that share: a tenant's pools, or a group's tenants. ``owing`` sums what they are owed."""

    def __init__(self, weight: float, guarantee: int, limit: int, children: Sequence[Child]) -> None:
        self.weight, self.guarantee, self.limit, self.children = weight, guarantee, limit, children
        held = waiting = whole = owing = promises = 0
        first_for = 0.0
        for child in children:
            child.parent = self
            held += child.held
            waiting += child.waiting
            whole += child.demand
            owing += child.owed
            if child.guarantee:
                promises += child.promise
            if child.first_for > first_for:
                first_for = child.first_for
        self.held, self.waiting, self.first_for = held, waiting, first_for
        self.owing, self.promises = owing, promises
        self.whole = whole
        """What the members could hold if this had no limit."""
        self.demand = self.target = whole if whole < limit else limit
        self.heap: list[tuple[float, float, int, Child]] | None = None
        self.turns: list[tuple[float, bool, float, int, Child]] | None = None
        self.reckon()

    def whole_tasks(self, space: int) -> int:
        left = space
        for child in self.children:
            left -= child.whole_tasks(min(left, child.limit - child.held)) if child.waiting else 0
        return space - left

    def room_for(self, child: Node, room: int) -> int:
        """What ``child`` may take of ``room``: what it is owed, or what the others are not."""
        owed = child.owed
        rest = room - self.owing + owed
        if rest >= owed:
            return rest
        return room if room < owed else owed

    def begin_round(self, may: Callable[[Child], int]) -> None:
        """Line up who ``may`` get something; ties go to who waits longest, then by the order given."""
        self.heap = heap = [
            (child.key, -child.first_for, place, child)
            for place, child in enumerate(self.children)
            if may(child)
        ]
        heapq.heapify(heap)
        for _, _, _, child in heap:
            if isinstance(child, Branch):
                child.heap = None

    def grant(
        self, room: int, entitled: bool = False, report: bool = False, below: float = math.inf
    ) -> Leaf | None:
        """One task to the member with the lowest key, if under ``below``; else as :meth:`Leaf.grant`."""
        if self.heap is None:
            self.begin_round(LACKS if entitled else WAITS)
        room = min(room, self.room)
        heap = self.heap or []
        while heap and room > 0:
            at, first_for, place, child = heap[0]
            if child.key != at:
                heapq.heapreplace(heap, (child.key, first_for, place, child))
                continue
            if at >= below:
                return None
            space = self.room_for(child, room)
            if below <= 0.0:
                # A task that ends beyond the guarantee has no claim by it, however little is held yet.
                space = min(space, child.guarantee - child.held)
            leaf = child.grant(space, entitled, report)
            if leaf is None:
                heapq.heappop(heap)
                continue
            if leaf.last:
                self.gain(leaf.last)
            return leaf
        return None

    def grant_lack(self, space: int) -> int:
        """Give what is within the targets below, up to ``space`` slots and one water level; the slots given.

        The same as turn by turn, but for less than a task of each member, which is left to the turns.
        """
        space = min(space, self.room)
        if self.owing or space <= 0:
            return 0
        lacking = [child for child in self.children if child.lack]
        spaces = [child.lack for child in lacking]
        if space < self.lack:
            parts = [Part(c.held, c.guarantee, c.weight, c.held + c.lack) for c in lacking]
            level = level_of(space + sum([child.held for child in lacking]), parts)
            spaces = [int(held_at(level, part) - part.low) for part in parts]
        granted = sum([child.grant_lack(part) for child, part in zip(lacking, spaces, strict=True) if part])
        self.lack -= granted
        self.gain(granted)
        return granted

    def advance(self, room: int) -> int:
        """One step of the member with the lowest key by targets, as :meth:`Leaf.advance`."""
        turns = self.turns
        if turns is None:
            self.turns = turns = [
                (*_turn(child), place, child)
                for place, child in enumerate(self.children)
                if child.target + child.star < child.demand
            ]
            heapq.heapify(turns)
        room = min(room, self.limit - self.target - self.star)
        while turns and room > 0:
            *_, place, child = turns[0]
            slots = child.advance(room)
            if slots:
                self.target += slots
                heapq.heapreplace(turns, (*_turn(child), place, child))
                return slots
            heapq.heappop(turns)
        return 0


def _turn(child: Child) -> tuple[float, bool, float]:
    """The place among the turns. At equal keys what is held stays, or slots would go to and fro."""
    filled, guarantee = child.target + child.star, child.guarantee
    at = key(filled, guarantee, child.weight) if guarantee else filled / child.weight
    return at, filled >= child.held, -child.first_for


Child = Leaf | Branch

OWED: Callable[[Child], int] = attrgetter("owed")
LACKS: Callable[[Child], int] = attrgetter("lack")
WAITS: Callable[[Child], int] = attrgetter("waiting")
