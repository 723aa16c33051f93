"""Why a scheduled task does not start: its pool, its place in line, and what else holds it back. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow_provider_raytenant.domain.explain_words import line_of, place, some
from airflow_provider_raytenant.domain.explanation import (
    Explanation,
    Verdict,
    alive,
    has_controller,
    last_of,
    no_scheduler,
    silence,
)
from airflow_provider_raytenant.domain.pausing import Target, pauses_in
from airflow_provider_raytenant.domain.pool_rows import Change, ExistingPool
from airflow_provider_raytenant.domain.waiting_facts import Facts, Holder, Line, PlanFacts
from airflow_provider_raytenant.domain.wording import count

SHOWN_HOLDERS: Final = 5
SHOWN_OTHERS: Final = 3
"""Holders of the task's own pool, and of the pools that share with it, that are shown."""

UNLIMITED: Final = -1
"""Airflow's size of a pool without a limit."""

_SYNC: Final = "`airflow raytenant pools sync`"
_DAG_PAGE: Final = "It is a limit of the DAG, not of the pool: change it there, or wait."


def explain_scheduled(facts: Facts) -> Explanation:
    """A task that is ready, and waits for what the scheduler gives out."""
    pool = facts.pool
    if pool is None:
        return _no_pool(facts)
    pauses = sorted(pauses_in(pool.description)) if pool.is_ours else []
    if pauses:
        return _paused(facts, pool, pauses)
    for look in (_never, no_scheduler, _held_back, _next_pass, _after_sync):
        found = look(facts)
        if found is not None:
            return found
    return _too_small(facts, pool) or _in_line(facts, pool)


# -- what can never be ---------------------------------------------------------------------------------


def _no_pool(facts: Facts) -> Explanation:
    name = facts.task.pool
    answer = f"Can never start: there is no pool {name}."
    if facts.tenant is not None and facts.plan is not None:
        return Explanation(
            Verdict.NO_POOL, answer, tuple(_plan_lines(facts.plan)), advice=(f"Make it: {_SYNC}.",)
        )
    if facts.tenant is not None and facts.silent:
        return Explanation(
            Verdict.NO_POOL,
            answer,
            tuple(silence(facts)),
            advice=(f"When its cluster answers again: {_SYNC}.",),
        )
    advice = "Make it (in the UI: Admin, Pools), or name another in the DAG."
    if name.startswith("ray."):
        advice = "The tenant file asks for no such pool: add its tenant (or group) there, or mend the DAG."
    return Explanation(Verdict.NO_POOL, answer, advice=(advice,))


def _paused(facts: Facts, pool: ExistingPool, pauses: Sequence[Target]) -> Explanation:
    names = " and ".join(map(str, pauses))
    return Explanation(
        Verdict.POOL_PAUSED,
        f"Waits while {names} {'is' if len(pauses) == 1 else 'are'} paused: {pool.name} starts nothing new.",
        tuple(_lines(facts, pool)),
        advice=tuple(f"When it may go on: `airflow raytenant resume {pause.name}`." for pause in pauses),
    )


def _never(facts: Facts) -> Explanation | None:
    """It asks for more than there could be, of a pool of ours or of another."""
    pool, plan, slots = facts.pool, facts.plan, facts.task.slots
    if pool is None:
        return None
    if not pool.is_ours:
        return None if pool.slots == UNLIMITED or slots <= pool.slots else _never_elsewhere(facts, pool)
    if plan is None:
        return None if facts.silent else _of_nobody(facts, pool)
    if slots <= plan.most:
        return None
    if plan.most == 0 and plan.limit != 0:
        return Explanation(
            Verdict.NO_NODES,
            f"Cannot start now: no alive node of {plan.pool.shares} has room for even one slot.",
            tuple(_lines(facts, pool)),
            advice=("It starts when nodes join. See what the cluster has: `airflow raytenant doctor`.",),
        )
    if plan.limit is not None and plan.limit <= plan.most:
        bound, change = f"the limit of tenant {facts.tenant}", "raise the limit in the tenant file"
    else:
        bound, change = f"all that {plan.pool.shares} has today", f"add nodes to {plan.pool.shares}"
    return Explanation(
        Verdict.NEVER,
        f"Can never start: it asks for {count(slots, 'slot')}, and {plan.most}, {bound}, is the most "
        f"that {pool.name} can have.",
        tuple(_lines(facts, pool)),
        advice=(
            f"Ask for at most {count(plan.most, 'slot')} (num_cpus, memory, workers of the task), "
            f"or {change}. Then clear the task.",
        ),
    )


def _never_elsewhere(facts: Facts, pool: ExistingPool) -> Explanation:
    return Explanation(
        Verdict.NEVER,
        f"Can never start: it asks for {count(facts.task.slots, 'slot')}, and pool {pool.name} has "
        f"{pool.slots} in all.",
        tuple(_lines(facts, pool)),
        advice=("Give the pool more slots (in the UI: Admin, Pools), or ask for less.",),
    )


def _of_nobody(facts: Facts, pool: ExistingPool) -> Explanation:
    return Explanation(
        Verdict.NEVER,
        f"Can never start: the tenant file asks for no pool {pool.name} any more.",
        tuple(_lines(facts, pool)),
        advice=("Put the tenant (or its group) back into the tenant file, or name another in the DAG.",),
    )


# -- what else than the pool ---------------------------------------------------------------------------


def _held_back(facts: Facts) -> Explanation | None:
    held = facts.line.held_back if facts.line is not None else None
    if held is None or facts.pool is None:
        return None
    if held.limit == "max_active_tasks":
        what, reached = "tasks of the run are queued or running", held.active >= held.most
    else:
        # Those that stand before it in the line are counted with the active ones.
        what, reached = "of its instances are active or come before it", True
    tail = f"{held.active} of {held.most} {what}"
    return Explanation(
        Verdict.HELD_BACK,
        f"Held back by {held.limit}: {tail}{'' if reached else ', and others of the run come first'}.",
        tuple(_lines(facts, facts.pool)),
        advice=(_DAG_PAGE,),
    )


def _next_pass(facts: Facts) -> Explanation | None:
    """The pool has room for it, as the scheduler goes through the line."""
    pool, line, settings = facts.pool, facts.line, facts.settings
    if pool is None or line is None or not _fits(facts, pool.slots):
        return None
    evidence = tuple(_lines(facts, pool))
    schedulers = alive(facts.processes.schedulers, facts.processes.scheduler_silent)
    most = settings.parallelism * len(schedulers)
    if 0 < most <= settings.executing:
        return Explanation(
            Verdict.EXECUTOR_FULL,
            f"Its pool has room, but {count(settings.executing, 'task')} are queued or running, all that "
            "[core] parallelism lets be.",
            evidence,
            advice=(
                "It starts when one of them leaves its worker; parallelism here may not be the scheduler's.",
            ),
        )
    if 0 < settings.seen <= line.seen_before:
        return Explanation(
            Verdict.HIDDEN,
            f"Its pool has room, but the scheduler may not see it: it looks at {settings.seen} tasks a pass, "
            f"and {line.seen_before} come before it.",
            evidence,
            advice=("Set [scheduler] max_tis_per_query to 64 or more for the scheduler, and restart it.",),
        )
    return Explanation(
        Verdict.NEXT_PASS,
        f"Is about to start: {pool.name} has room for its {count(facts.task.slots, 'slot')}.",
        evidence,
        advice=("If it stays so for a minute, look at the scheduler's log and at the executor.",),
    )


# -- the pool's size, and the line ---------------------------------------------------------------------


def _after_sync(facts: Facts) -> Explanation | None:
    """The pool as it should be has room for it."""
    pool, plan = facts.pool, facts.plan
    if pool is None or plan is None or not pool.is_ours:
        return None
    wanted = _size(facts, pool)
    if wanted <= pool.slots or not _fits(facts, wanted):
        return None
    evidence = tuple(_lines(facts, pool))
    if has_controller(facts):
        return Explanation(
            Verdict.NEXT_SYNC,
            f"Starts when the controller has written {pool.name}: it grows from {pool.slots} to "
            f"{count(wanted, 'slot')}.",
            evidence,
            advice=(f"If it stays so, do it by hand: {_SYNC}.",),
        )
    return Explanation(
        Verdict.NO_CONTROLLER,
        f"Waits for a sync: {pool.name} has {pool.slots} slots and should have {wanted}, but no controller "
        "is alive.",
        evidence,
        advice=(f"Now: {_SYNC}.", "Then start `airflow raytenant controller` beside the scheduler."),
    )


def _too_small(facts: Facts, pool: ExistingPool) -> Explanation | None:
    """Airflow starts nothing that is larger than its pool."""
    size, slots, plan = _size(facts, pool), facts.task.slots, facts.plan
    if pool.slots == UNLIMITED or slots <= size:
        return None
    most = f" and could have {plan.most}" if plan is not None else ""
    others = sum(other.occupied for other in plan.others) if plan is not None else 0
    hold = f", but other pools hold {others}" if others else ""
    return Explanation(
        Verdict.POOL_SMALL,
        f"Waits for {pool.name} to grow to {count(slots, 'slot')}: it has {size}{most}{hold}.",
        tuple(_lines(facts, pool)),
        _holders(facts, pool),
        advice=_wait_advice(facts, pool),
    )


def _in_line(facts: Facts, pool: ExistingPool) -> Explanation:
    line, slots = facts.line, facts.task.slots
    if line is None or line.place is None:
        # It was started, or held back, between two readings.
        return Explanation(
            Verdict.IN_LINE,
            f"Waits for {count(slots, 'slot')} of {pool.name}.",
            tuple(_lines(facts, pool)),
            _holders(facts, pool),
            _wait_advice(facts, pool),
        )
    short = max(1, sum(line.ahead) + slots - (_size(facts, pool) - pool.occupied))
    before = ""
    if line.ahead:
        verb = "stands" if len(line.ahead) == 1 else "stand"
        before = f"; {_ahead(line)} {verb} before it"
    return Explanation(
        Verdict.IN_LINE,
        f"Waits in line, {place(line.place)} of {line.of}: starts when {count(short, 'more slot')} of "
        f"{pool.name} {'comes' if short == 1 else 'come'} free{before}.",
        tuple(_lines(facts, pool)),
        _holders(facts, pool),
        _wait_advice(facts, pool),
    )


def _size(facts: Facts, pool: ExistingPool) -> int:
    """Of the pool, as it is or as the next sync makes it."""
    plan = facts.plan
    if plan is None or not pool.is_ours or plan.pool.change is Change.REFUSED:
        return pool.slots
    return max(pool.slots, plan.pool.wanted)


def _fits(facts: Facts, size: int) -> bool:
    """Whether the scheduler would start it in a pool of that size: it goes around what does not fit."""
    if facts.line is None or facts.line.place is None or facts.pool is None:
        return False
    if size == UNLIMITED:
        return True
    free = size - facts.pool.occupied
    for slots in facts.line.ahead:
        if slots <= free:
            free -= slots
    return facts.task.slots <= free


# -- what shows it -------------------------------------------------------------------------------------


def _lines(facts: Facts, pool: ExistingPool) -> list[tuple[str, str]]:
    lines = []
    if facts.task.resumes:
        lines.append(("its job", "has ended: what is left is its end on a worker, which takes slots again"))
    if facts.line is not None:
        lines.append(("line", _standing(facts.line)))
        seen, before = facts.settings.seen, facts.line.seen_before
        if 0 < seen <= before and before > len(facts.line.ahead):
            found = f"looks at {seen} tasks a pass (max_tis_per_query, parallelism)"
            lines.append(("scheduler", f"{found}; {before} of all pools come before it"))
    lines.append(("pool", _occupancy(facts, pool)))
    if not pool.is_ours:
        lines.append(("size", "whatever people set: the pool is not made by raytenant, so none follows"))
    if facts.plan is not None:
        lines += _plan_lines(facts.plan)
        if facts.plan.pool.change is Change.REFUSED and pool.is_ours:
            lines.append(
                ("sync", "refused: the slot has another shape now; it waits until nothing holds old ones")
            )
    lines += silence(facts)
    if pool.is_ours and not has_controller(facts):
        beats = [*facts.processes.controllers]
        lines.append(("controller", f"{last_of(beats)}: sizes do not follow"))
    return lines


def _plan_lines(plan: PlanFacts) -> list[tuple[str, str]]:
    lines = [("plan", line_of(plan.pool.why))]
    holding = [f"{other.name} {other.occupied}" for other in plan.others if other.occupied]
    if holding:
        lines.append(("others", f"hold slots of {plan.pool.shares}, too: {some(holding, 6)}"))
    if plan.uncounted:
        held = f"{count(plan.uncounted, 'slot')} held by jobs whose task is over"
        lines.append(("nobody's", f"{held}: `airflow raytenant jobs sweep` ends them"))
    return lines


def _standing(line: Line) -> str:
    if line.place is None:
        return f"{count(line.of, 'task')} could start if the pool had room; this one is not among them"
    return f"{place(line.place)} of {line.of}" + (f"; before it {_ahead(line)}" if line.ahead else "")


def _ahead(line: Line) -> str:
    return f"{count(len(line.ahead), 'task')} with {count(sum(line.ahead), 'slot')}"


def _occupancy(facts: Facts, pool: ExistingPool) -> str:
    if pool.slots == UNLIMITED:
        return f"{pool.name} has no limit; {pool.occupied} held"
    free = max(0, pool.slots - pool.occupied)
    text = f"{count(pool.slots, 'slot')}, {pool.occupied} held, {free} free"
    if facts.plan is not None and pool.is_ours:
        wanted = facts.plan.pool.wanted
        text += f"; a sync makes it {wanted}" if wanted != pool.slots else ""
        text += f"; at most {facts.plan.most}"
    return text


def _holders(facts: Facts, pool: ExistingPool) -> tuple[Holder, ...]:
    """The largest holders, of the task's pool first, then of those that share with it."""
    own = _largest([holder for holder in facts.holders if holder.pool == pool.name])[:SHOWN_HOLDERS]
    names = {other.name for other in facts.plan.others} if facts.plan is not None else set()
    others = _largest(
        [holder for holder in facts.holders if holder.pool in names and holder.pool != pool.name]
    )
    if facts.plan is not None and _size(facts, pool) >= facts.plan.most:
        return tuple(own)
    return (*own, *others[:SHOWN_OTHERS])


def _largest(holders: Sequence[Holder]) -> list[Holder]:
    return sorted(
        holders, key=lambda holder: (-holder.slots, holder.since is None, str(holder.since), holder.task)
    )


def _wait_advice(facts: Facts, pool: ExistingPool) -> tuple[str, ...]:
    advice = ["Nothing is wrong: it starts in its turn. A higher priority_weight brings it forward."]
    if pool.is_ours and not has_controller(facts):
        advice = [
            "Start `airflow raytenant controller`: without one no slot is lent or given back. "
            f"Once, by hand: {_SYNC}."
        ]
    shown = [holder for holder in _holders(facts, pool) if holder.job is not None]
    if shown:
        job = shown[0].job
        advice.append(
            f"To look at the largest: `airflow raytenant jobs show {job}`. If it can be done without: "
            f"`airflow raytenant jobs stop {job}` (its task then fails)."
        )
    return tuple(advice)
