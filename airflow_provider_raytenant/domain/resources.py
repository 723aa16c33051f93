"""Resources, what a job asks for (its footprint), and how many slots that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_raytenant.domain.quantities import (
    STEPS,
    format_count,
    format_memory,
    parse_count,
    parse_memory,
)


@dataclass(frozen=True)
class Resources:
    """An amount of each resource: ``cpus`` and ``gpus`` as fractions, ``memory`` in bytes.

    ``custom`` holds Ray's custom resources by name. What is not named is 0.
    """

    cpus: float = 0.0
    memory: int = 0
    gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Resources) -> Resources:
        names = sorted({*self.custom, *other.custom})
        return Resources(
            cpus=round(self.cpus + other.cpus, 4),
            memory=self.memory + other.memory,
            gpus=round(self.gpus + other.gpus, 4),
            custom={n: round(self.custom.get(n, 0.0) + other.custom.get(n, 0.0), 4) for n in names},
        )

    def times(self, factor: float) -> Resources:
        """Every amount multiplied; memory is rounded down to whole bytes."""
        return Resources(
            cpus=round(self.cpus * factor, 4),
            # In integers: 57 % of 100 GiB as a float is a byte less than 57 GiB, which costs a slot.
            memory=self.memory * round(factor * 10**9) // 10**9,
            gpus=round(self.gpus * factor, 4),
            custom={name: round(amount * factor, 4) for name, amount in self.custom.items()},
        )

    def fits_in(self, other: Resources) -> bool:
        """Whether ``other`` has at least as much of everything."""
        return (
            self.cpus <= other.cpus
            and self.memory <= other.memory
            and self.gpus <= other.gpus
            and all(amount <= other.custom.get(name, 0.0) for name, amount in self.custom.items())
        )

    def __str__(self) -> str:
        parts = [f"{format_count(self.cpus)} CPU"]
        if self.memory:
            parts.append(format_memory(self.memory))
        if self.gpus:
            parts.append(f"{format_count(self.gpus)} GPU")
        parts += [f"{format_count(amount)} {name}" for name, amount in self.custom.items()]
        return " + ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The non-zero amounts, memory in bytes; :meth:`from_json` is the way back."""
        amounts: dict[str, Any] = {"cpus": self.cpus, "memory": self.memory, "gpus": self.gpus}
        if self.custom:
            amounts["custom"] = dict(self.custom)
        return {name: amount for name, amount in amounts.items() if amount}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Resources:
        """Resources from what :meth:`to_json` gave.

        :raises ValueError: an amount is not one.
        """
        return cls(
            cpus=parse_count(data.get("cpus", 0)),
            memory=parse_memory(data.get("memory", 0)),
            gpus=parse_count(data.get("gpus", 0)),
            custom={str(name): parse_count(amount) for name, amount in (data.get("custom") or {}).items()},
        )


@dataclass(frozen=True)
class Workers:
    """What the job's own Ray tasks and actors will use at the same time, beside its driver.

    Ray caps the driver only, so a job that uses more than it declares takes it from others.

    :param count: how many run at the same time.
    :param num_cpus: CPUs of each; fractions are fine. Default 1.
    :param memory: memory of each: ``"4GiB"``, ``"4GB"`` or bytes. Default: not reserved.
    :param num_gpus: GPUs of each. Default 0.
    :param resources: custom resources of each, by name.

    Example: ``Workers(count=4, num_cpus=2, memory="4GiB")``

    :raises ValueError: saying which argument, what was found and what is allowed.
    """

    count: int
    num_cpus: float = 1.0
    memory: str | int | None = None
    num_gpus: float = 0.0
    resources: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise ValueError(f"Workers count: found {self.count!r}; allowed: a whole number of at least 1")
        _ = self.each

    @property
    def each(self) -> Resources:
        """What one of them uses."""
        return request("Workers ", self.num_cpus, self.memory, self.num_gpus, self.resources)

    @property
    def total(self) -> Resources:
        """What all of them use together."""
        return self.each.times(self.count)


def request(
    owner: str,
    num_cpus: object,
    memory: object,
    num_gpus: object,
    resources: Mapping[str, Any] | None,
) -> Resources:
    """One process's request from Ray-style arguments; ``owner`` starts the error message.

    :raises ValueError: saying which argument, what was found and what is allowed.
    """

    def named(name: str, parse: Any, value: object) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"{owner}{name}: {error}") from None

    if resources is not None and not isinstance(resources, Mapping):
        raise ValueError(f"{owner}resources: found {resources!r}; allowed: a dict of name to amount")
    for name in resources or {}:
        if name in ("CPU", "GPU", "memory", "object_store_memory"):
            raise ValueError(
                f"{owner}resources: found {name!r}; allowed: custom resources "
                "(num_cpus, num_gpus and memory have arguments of their own)"
            )
    return Resources(
        cpus=named("num_cpus", parse_count, num_cpus),
        memory=named("memory", parse_memory, memory if memory is not None else 0),
        gpus=named("num_gpus", parse_count, num_gpus),
        custom={str(n): named(f"resources[{n!r}]", parse_count, a) for n, a in (resources or {}).items()},
    )


def slots_for(footprint: Resources, slot: Resources) -> int:
    """How many slots hold the footprint: the largest of its resources by slot, at least 1.

    Custom resources do not count: a slot has none. A resource that the slot lacks does not count
    either; the choice of the group sees to it that a GPU request meets a slot with GPUs.
    """
    return max([1, *(_ceil_div(need, have) for need, have in _pairs(footprint, slot) if have)])


def whole_slots_in(space: Resources, slot: Resources) -> int:
    """How many whole slots the space holds: the scarcest resource decides."""
    return min(have // need for have, need in _pairs(space, slot) if need)


def _pairs(one: Resources, other: Resources) -> tuple[tuple[int, int], ...]:
    """CPU, GPU and memory of both as integers, so that division is exact."""
    return (
        (round(one.cpus * STEPS), round(other.cpus * STEPS)),
        (round(one.gpus * STEPS), round(other.gpus * STEPS)),
        (one.memory, other.memory),
    )


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
