"""What the parts of the tenant file are made of: a base without unknown keys, names, amounts, slots.

Every wrong value says what was found and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    WithJsonSchema,
    model_validator,
)

from airflow_provider_raytenant.domain import access, quantities
from airflow_provider_raytenant.domain.resources import Resources

NAME_ALLOWED = "lower-case letters, digits, '-' and '_', a letter or digit first and last, at most 50"
_NAME_PATTERN = r"^[a-z0-9]([a-z0-9_-]{0,48}[a-z0-9])?$"


def checked_name(value: object) -> str:
    """A name as the file allows it.

    :raises ValueError: saying what was found and what is allowed.
    """
    if not isinstance(value, str) or not re.fullmatch(_NAME_PATTERN, value):
        raise ValueError(f"found {value!r}; allowed: {NAME_ALLOWED}")
    return value


def positive(value: float) -> float:
    """An amount above 0.

    :raises ValueError: saying what was found.
    """
    if value <= 0:
        raise ValueError(f"found {value:g}; allowed: more than 0")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"found {value!r}; allowed: a whole number of slots, at least 0")
    return value


def _several(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        raise ValueError(f"found {value!r}; allowed: a whole number of slots, at least 2")
    return value


def _weight(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e6:
        raise ValueError(f"found {value!r}; allowed: a number above 0 and below 1000000")
    return float(value)


_MEMORY_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": quantities.LARGEST_MEMORY},
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGTP]i?)?B$"},
    ]
}
_FRACTION_SCHEMA = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"},
    ]
}
_NAME_SCHEMA = {"type": "string", "pattern": _NAME_PATTERN}

Name = Annotated[str, BeforeValidator(checked_name), WithJsonSchema(_NAME_SCHEMA)]
Memory = Annotated[int, BeforeValidator(quantities.parse_memory), WithJsonSchema(_MEMORY_SCHEMA)]
Count = Annotated[
    float,
    BeforeValidator(quantities.parse_count),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": quantities.LARGEST_COUNT}),
]
Fraction = Annotated[float, BeforeValidator(quantities.parse_fraction), WithJsonSchema(_FRACTION_SCHEMA)]
Slots = Annotated[int, BeforeValidator(_whole), WithJsonSchema({"type": "integer", "minimum": 0})]
Lifetime = Annotated[
    int,
    BeforeValidator(access.checked_lifetime),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": access.SHORTEST_SECONDS, "maximum": access.LONGEST_SECONDS},
                {"type": "string", "pattern": r"^[0-9]{1,10}\s*[smhd]$"},
            ]
        }
    ),
]
Weight = Annotated[
    float,
    BeforeValidator(_weight),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e6}),
]
PerGroup = Slots | dict[Name, Slots]
SlotsFrom2 = Annotated[int, BeforeValidator(_several), WithJsonSchema({"type": "integer", "minimum": 2})]
PerGroupFrom2 = SlotsFrom2 | dict[Name, SlotsFrom2]


class Part(BaseModel):
    """A part of the file: no unknown keys, no changes afterwards.

    Validators are built when first used: a DAG never needs those of the whole file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, data: Any) -> Any:
        known = ", ".join(cls.model_fields)
        if not isinstance(data, (Mapping, BaseModel)):
            raise ValueError(f"found {data!r}; allowed: a mapping with the keys {known}")
        unknown = (
            [str(key) for key in data if key not in cls.model_fields] if isinstance(data, Mapping) else []
        )
        if unknown:
            raise ValueError(f"{unknown[0]}: found an unknown key; allowed: {known}")
        return data

    def over(self, base: Self) -> Self:
        """This on top of ``base``: its own keys win, and a part within lies on the part there."""
        values = {key: getattr(base, key) for key in base.model_fields_set}
        for key in self.model_fields_set:
            own, there = getattr(self, key), values.get(key)
            both = isinstance(own, Part) and isinstance(there, Part)
            values[key] = own.over(there) if both else own
        return type(self).model_validate(values)


class Amount(Part):
    """An amount of CPU, memory and GPU, in the words of the file."""

    cpus: Count = 0.0
    memory: Memory = 0
    gpus: Count = 0.0

    @property
    def resources(self) -> Resources:
        """The same as :class:`Resources`."""
        return Resources(cpus=self.cpus, memory=self.memory, gpus=self.gpus)


class FullAmount(Amount):
    """An amount that has both CPU and memory."""

    cpus: Annotated[Count, AfterValidator(positive)]
    memory: Annotated[Memory, AfterValidator(positive)]
