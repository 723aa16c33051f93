"""What a job holds in Ray against what it declared: one sample, the peak of all, and what to say of it.

All of this is what Ray *reserves* (its logical resources), as the pools count it: a task that asked for one
CPU holds one, however many threads it runs, and one that reserved no memory holds none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from airflow_provider_raytenant.domain.job_spec import METADATA_PREFIX
from airflow_provider_raytenant.domain.quantities import format_count, format_memory
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.exceptions import RequestError

USAGE_KEY: Final = "raytenant_usage"
"""The XCom with what :meth:`Peak.to_json` gives, beside the job's ``submission_id`` and :data:`RUN_SECONDS`.
Without a sample there is no peak in it; without the runner's end record there are no seconds."""

RUN_SECONDS: Final = "run_seconds"
"""How long the entrypoint itself ran, in seconds: without the wait for resources and the environment."""

NOTABLY: Final = 1.25
"""A peak is worth another warning when it is so many times what the last one spoke of."""


class OnOveruse(StrEnum):
    """What to do about a job that holds more than it declared."""

    IGNORE = "ignore"
    """Do not even look."""

    WARN = "warn"
    """Say so in its task's log."""


def checked_on_overuse(value: object) -> OnOveruse:
    """The argument of that name.

    :raises RequestError: saying what was found and what is allowed.
    """
    if isinstance(value, str) and value in [*OnOveruse]:
        return OnOveruse(value)
    raise RequestError(f"on_overuse: found {value!r}; allowed: {', '.join(OnOveruse)}")


@dataclass(frozen=True)
class UsageSample:
    """What the tasks and actors of each job held at one moment.

    :param held: by Ray's own job id, ``"02000000"``: one for each driver that has called ``ray.init``.
        A driver that has no task is there, with nothing. What Ray reserves for the driver itself is not here.
    """

    held: Mapping[str, Resources] = field(default_factory=dict)

    def of(self, job_ids: Iterable[str]) -> Resources | None:
        """What these jobs held together; ``None`` when the sample knows none of them."""
        known = [self.held[job_id] for job_id in job_ids if job_id in self.held]
        return _sum(known) if known else None


def declared_in(request: Mapping[str, Any]) -> Resources | None:
    """The footprint in a submit's metadata; ``None`` where there is none that is sound."""
    try:
        return Resources.from_json(json.loads(request["metadata"][METADATA_PREFIX + "footprint"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def driver_in(request: Mapping[str, Any]) -> Resources:
    """What Ray reserves for the driver of a submit."""
    return Resources(
        cpus=request.get("entrypoint_num_cpus", 0.0),
        memory=request.get("entrypoint_memory", 0),
        gpus=request.get("entrypoint_num_gpus", 0.0),
        custom=request.get("entrypoint_resources") or {},
    )


def ray_spelling(name: str) -> str:
    """How Ray's dashboard spells a custom resource in its summary of nodes (2.60).

    >>> ray_spelling("my_fpga")
    'myFpga'
    """
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


class Peak:
    """The most that one job held of each resource, as far as the samples show.

    :param declared: the job's footprint.
    :param driver: what Ray reserves for its driver.
    """

    def __init__(self, declared: Resources, driver: Resources) -> None:
        self.declared = declared
        self.samples = 0
        self._driver = driver
        self._most = Resources()
        self._warned = declared
        self._names = {ray_spelling(name): name for name in declared.custom}

    @property
    def most(self) -> Resources:
        """The peak of each resource; not all of them need have been held in the same moment."""
        return self._most

    def add(self, held: Resources) -> str | None:
        """Take in what the job's tasks and actors held.

        Returns a warning when this is the first time that the job held more than it declared, or notably
        more than the last warning said: ``"held up to 6 CPUs; declared 4"``.
        """
        custom = {self._names.get(name, name): amount for name, amount in held.custom.items()}
        all_of_it = self._driver + Resources(held.cpus, held.memory, held.gpus, custom)
        self.samples += 1
        self._most = _larger(self._most, all_of_it)
        if not any(_is_news(*pair) for pair in _pairs(self._most, self._warned, self.declared)):
            return None
        self._warned = _larger(self._warned, self._most)
        return self.overuse()

    def go_on_from(self, before: Mapping[str, Any]) -> None:
        """Go on from what an earlier watch of the same job gave as :meth:`to_json`.

        :raises KeyError, TypeError, ValueError, AttributeError: it is not that.
        """
        most, samples = Resources.from_json(before["peak"]), int(before["samples"])
        self._most, self.samples = _larger(self._most, most), self.samples + samples
        self._warned = _larger(self._warned, most)

    def has_outgrown(self, other: Resources) -> bool:
        """Whether the peak is notably above ``other`` in some resource."""
        return any(most > seen and most >= NOTABLY * seen for most, seen in _pairs(self._most, other))

    def overuse(self) -> str | None:
        """Where the peak is above the footprint: ``"held up to 6 CPUs; declared 4"``; ``None``: nowhere."""
        over = [(name, most, own) for name, most, own in _both(self._most, self.declared) if most > own]
        if not over:
            return None
        held = ", ".join(_text(name, most) for name, most, _ in over)
        if len(over) == 1:
            return f"held up to {held}; declared {_bare(over[0][0], over[0][2])}"
        return f"held up to {held}; declared {', '.join(_text(name, own) for name, _, own in over)}"

    def summary(self) -> str:
        """One line about the whole: ``"Peak use: 6 CPUs, 2GiB reserved, of declared 4 CPUs, 8GiB"``."""
        held = ", ".join(
            _text(name, most) + (" reserved" if name == "memory" else "")
            for name, most, own in _both(self._most, self.declared)
            if most or own
        )
        declared = ", ".join(_text(name, own) for name, _, own in _both(self._most, self.declared) if own)
        return f"Peak use: {held}, of declared {declared or 'nothing'}"

    def to_json(self) -> dict[str, Any]:
        """``peak`` and ``declared`` as :meth:`Resources.to_json` gives them, ``samples``, and ``over``: what
        :meth:`overuse` says.
        """
        return {
            "peak": self._most.to_json(),
            "declared": self.declared.to_json(),
            "samples": self.samples,
            "over": self.overuse(),
        }


def _sum(all_of_them: Iterable[Resources]) -> Resources:
    total = Resources()
    for one in all_of_them:
        total += one
    return total


def _larger(one: Resources, other: Resources) -> Resources:
    names = sorted({*one.custom, *other.custom})
    return Resources(
        cpus=max(one.cpus, other.cpus),
        memory=max(one.memory, other.memory),
        gpus=max(one.gpus, other.gpus),
        custom={name: max(one.custom.get(name, 0.0), other.custom.get(name, 0.0)) for name in names},
    )


def _is_news(most: float, warned: float, declared: float) -> bool:
    return most > warned and (warned <= declared or most >= NOTABLY * warned)


def _pairs(*all_of_them: Resources) -> Iterator[tuple[float, ...]]:
    """The amounts of each resource, one of each of these."""
    yield tuple(one.cpus for one in all_of_them)
    yield tuple(one.memory for one in all_of_them)
    yield tuple(one.gpus for one in all_of_them)
    for name in sorted({name for one in all_of_them for name in one.custom}):
        yield tuple(one.custom.get(name, 0.0) for one in all_of_them)


def _both(one: Resources, other: Resources) -> Iterator[tuple[str, float, float]]:
    """Name and both amounts of each resource."""
    names = ["CPU", "memory", "GPU", *sorted({*one.custom, *other.custom})]
    for name, (mine, its) in zip(names, _pairs(one, other), strict=True):
        yield name, mine, its


def _bare(name: str, amount: float) -> str:
    return format_memory(int(amount)) if name == "memory" else format_count(amount)


def _text(name: str, amount: float) -> str:
    """``6 CPUs``, ``1 GPU``, ``2GiB``, ``0.5 fpga``."""
    if name == "memory":
        return _bare(name, amount)
    return f"{_bare(name, amount)} {name}" + ("s" if name in ("CPU", "GPU") and amount != 1 else "")
