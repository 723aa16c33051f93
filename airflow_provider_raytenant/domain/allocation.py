"""Elastic pools: how many slots each pool gets now, from what is held and what waits.

Pure. Tenants share the slots of a group, and a tenant's own pools share what the tenant gets, by the same
rules. What holds, the earlier before the later:

1. *safe*: the sum of ``max(size, occupied)`` is never above ``max(capacity, sum of occupied)``. Nothing is
   killed: a pool that shrinks drains, and its slots go to others only when they have come free.
2. *limit*: no size is above the member's limit.
3. *guarantee*: demand up to the guarantee is served before anyone borrows, as slots come free.
4. *reservation*: the task that has been first in line longest, and for ``patience`` seconds at least, has
   slots kept for it until it fits.
5. *work-conserving*: no slot idles while a waiting task that is not held back by 1 to 4 would fit.
6. *fair*: beyond guarantees, weighted max-min by demand.
7. *headroom*: slots that no waiting task can use are spread over idle pools.
8. *stable*: the same input gives the same sizes, and what is as it should be is left alone.

Free slots go out in rounds: promised demand, then starving tasks, then what is within the fair targets
(:mod:`airflow_provider_raytenant.domain.allocation_target`), then whatever fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_raytenant.domain.allocation_headroom import spread
from airflow_provider_raytenant.domain.allocation_target import set_drains, set_targets
from airflow_provider_raytenant.domain.allocation_tree import LACKS, OWED, WAITS, Branch, Child, Leaf
from airflow_provider_raytenant.domain.patience import LEAST

URGENT: Final = 3
"""Times the patience after which nothing goes around it any more, not even what is within others' shares."""


@dataclass(frozen=True, slots=True)
class Member:
    """One who shares: a pool, or a tenant with pools of its own. All amounts are whole slots.

    :param name: of the pool; not read where there are ``members``.
    :param weight: its part of what is beyond guarantees.
    :param guarantee: what it gets first, as slots come free.
    :param limit: the most it may have; ``None`` is no limit.
    :param occupied: the larger of what Airflow counts in the pool and what live Ray jobs declare.
    :param waiting: slots of the tasks that Airflow would start if the pool had room, in the order in which
        it would: by priority, then logical date. Tasks that something else holds back do not belong here.
    :param first_for: seconds for which the first of ``waiting`` has been first in line: since it became
        ready, or since the one before it started, if that was later. Not its whole wait: in a long queue
        everyone has waited long, and only who is passed over starves. Tasks above the limit or the capacity
        ask for nothing, so they are not the first either.
    :param headroom: whether it may have slots that nobody asks for now.
    :param members: pools of its own. It then has no ``occupied``, ``waiting`` and ``first_for`` itself.
    """

    name: str
    weight: float = 1.0
    guarantee: int = 0
    limit: int | None = None
    occupied: int = 0
    waiting: Sequence[int] = ()
    first_for: float = 0.0
    headroom: bool = True
    members: Sequence[Member] = ()


def allocate(capacity: int, members: Sequence[Member], *, patience: float = LEAST) -> dict[str, int]:
    """The size of every pool, in the order given; see the module for the rules.

    A size counts all of ``occupied``. Where live jobs hold slots that Airflow does not count (a task that
    was cleared while its job lives), take these off before the size is written, or it starts others there.

    Time grows with the members (``n log n``), the waiting tasks, and the slots that are free and contended;
    not with members times slots.

    :param patience: seconds for which a task is first in line, and does not fit, before slots are kept for
        it out of its turn, see :func:`~airflow_provider_raytenant.domain.patience.patience_of`.
    :raises ValueError: for an amount that cannot be, and for a name that is there twice.
    """
    if capacity < 0:
        raise ValueError(f"capacity: found {capacity}; allowed: at least 0")
    leaves: list[Leaf] = []
    root = Branch(1.0, 0, capacity, [_node(member, capacity, leaves) for member in members])
    _no_name_twice(leaves)
    _serve_promised(root, leaves)
    _serve_starving(root, leaves, patience)
    set_targets(root)
    _serve_entitled(root, leaves, patience)
    _serve_anyone(root)
    set_drains(root)
    spread(root, root.room - root.owing)
    return {leaf.name: leaf.size for leaf in leaves}


def _node(member: Member, most: int, leaves: list[Leaf]) -> Child:
    """The working form; ``most`` is the capacity or the limit above. Pools are added to ``leaves``."""
    if not 0 < member.weight < math.inf:
        raise ValueError(f"weight of {member.name}: found {member.weight}; allowed: above 0")
    limit = most if member.limit is None or member.limit > most else member.limit
    if limit < 0 or member.guarantee < 0 or member.occupied < 0:
        found = f"guarantee {member.guarantee}, limit {member.limit}, occupied {member.occupied}"
        raise ValueError(f"{member.name}: found {found}; allowed: at least 0")
    guarantee = member.guarantee if member.limit is None else min(member.guarantee, member.limit)
    if member.members:
        below = [_node(own, limit, leaves) for own in member.members]
        return Branch(member.weight, guarantee, limit, below)
    waiting = member.waiting
    if waiting and min(waiting) < 1:
        raise ValueError(f"waiting of {member.name}: found {min(waiting)} slots; allowed: at least 1")
    if waiting and max(waiting) > limit:
        waiting = [slots for slots in waiting if slots <= limit]
    leaf = Leaf(member.name, member.weight, guarantee, limit, member.occupied, waiting, member.first_for)
    leaf.takes_headroom = member.headroom
    leaves.append(leaf)
    return leaf


def _no_name_twice(leaves: Sequence[Leaf]) -> None:
    names = {leaf.name for leaf in leaves}
    if len(names) == len(leaves):
        return
    for leaf in leaves:
        if leaf.name not in names:
            raise ValueError(f"name: found {leaf.name} twice; allowed: one pool of a name")
        names.remove(leaf.name)


def _serve_promised(root: Branch, leaves: Sequence[Leaf]) -> None:
    """Demand up to the guarantees of the tenants."""
    if root.owing and root.room > 0:
        root.begin_round(OWED)
        while root.grant(root.room, below=0.0):
            pass
        _end_round(leaves)


def _serve_starving(root: Branch, leaves: Sequence[Leaf], patience: float) -> None:
    """Start who starved longest, as long as they fit, and keep slots for the first who does not."""
    starving = [leaf for leaf in leaves if leaf.queue and leaf.first_for >= patience and leaf.could_start()]
    for leaf in sorted(starving, key=lambda leaf: -leaf.first_for):
        if leaf.first > leaf.open_room():
            leaf.keep_for_first()
            return
        leaf.take_first()


def _serve_entitled(root: Branch, leaves: Sequence[Leaf], patience: float) -> None:
    """What is within the targets, by turn. The first that does not fit has slots kept, if nobody starves.

    Around a task that starves this goes on for a while: the targets leave room for it, so it costs that
    task no more than the time in which others drain to their targets.
    """
    kept = root.reserved
    if root.star and root.first_for < URGENT * patience:
        root.reserved = 0
    root.grant_lack(root.room)
    if root.lack and root.room > 0:
        root.begin_round(LACKS)
        keeps = not root.star
        while leaf := root.grant(root.room, entitled=True, report=keeps):
            if not leaf.last:
                leaf.keep(leaf.queue[leaf.position - 1])
                keeps = False
        _end_round(leaves)
    root.reserved = max(kept, root.reserved)


def _serve_anyone(root: Branch) -> None:
    """What is beyond the targets, by turn: better than to let slots idle."""
    if root.waiting and root.room > root.owing:
        root.begin_round(WAITS)
        while root.grant(root.room):
            pass


def _end_round(leaves: Sequence[Leaf]) -> None:
    for leaf in leaves:
        if leaf.position:
            leaf.end_round()
