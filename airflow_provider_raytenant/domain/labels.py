"""Ray's label selectors: reading one, and combining two into one that asks for both.

Ray's forms (``ray.util.scheduling_strategies``): ``v``, ``!v``, ``in(a,b)``, ``!in(a,b)``. A node without
the label satisfies the negative ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Condition:
    """What is asked of one label: to be one of ``values``, or, ``negative``, to be none of them."""

    values: frozenset[str]
    negative: bool = False

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition that Ray reads in ``text``."""
        text = text.strip()
        if text.startswith("!"):
            inner = cls.parse(text[1:])
            return cls(inner.values, not inner.negative)
        if text.startswith("in(") and text.endswith(")"):
            return cls(frozenset(choice.strip() for choice in text[3:-1].split(",")))
        return cls(frozenset({text}))

    def holds(self, value: str | None) -> bool:
        """Whether a label with this value (``None``: a node without the label) satisfies it."""
        return (value in self.values) is not self.negative

    def and_(self, other: Condition) -> Condition | None:
        """What satisfies both; ``None`` if nothing can."""
        if self.negative and other.negative:
            return Condition(self.values | other.values, negative=True)
        if self.negative:
            values = other.values - self.values
        elif other.negative:
            values = self.values - other.values
        else:
            values = self.values & other.values
        return Condition(values) if values else None

    def __str__(self) -> str:
        values = sorted(self.values)
        text = values[0] if len(values) == 1 else f"in({','.join(values)})"
        return f"!{text}" if self.negative else text


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node's labels satisfy a label selector."""
    return all(Condition.parse(text).holds(labels.get(key)) for key, text in selector.items())


def combined(selectors: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """One selector that asks for all that these ask for.

    What stands in one of them alone is taken over as it is written.

    :raises ValueError: two of them ask for what no label can be; it names the label and both conditions.
    """
    result: dict[str, str] = {}
    for selector in selectors:
        for key, text in selector.items():
            if key not in result or result[key] == text:
                result[key] = text
                continue
            both = Condition.parse(result[key]).and_(Condition.parse(text))
            if both is None:
                raise ValueError(f"no label {key} is both {result[key]!r} and {text!r}")
            result[key] = str(both)
    return result
