"""JSON as the standard means it: UTF-8, no NaN or Infinity, only valid Unicode, bounded depth.

Python's `json` alone accepts NaN, turns `1e999` into infinity, lets lone surrogates through, and guesses
UTF-16; each of these would break a reader further on (a database, another language).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

MAX_DEPTH = 200
_LONGEST_PLACE = 200


class StrictJSONError(ValueError):
    """The text is refused.

    kind: `not_json` or `not_finite`.
    details: what the message names, for a program: line and column, or offset, or place.
    """

    def __init__(self, kind: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details


class _Node:
    """A value with the way back to the root, so that a place is spelled out only when one is to be named."""

    __slots__ = ("depth", "key", "parent", "value")

    def __init__(self, value: object, parent: _Node | None = None, key: str | int = 0) -> None:
        self.value = value
        self.parent = parent
        self.key = key
        self.depth: int = parent.depth + 1 if parent else 0

    def children(self) -> Iterator[_Node]:
        if isinstance(self.value, dict):
            return (_Node(value, self, key) for key, value in self.value.items())
        if isinstance(self.value, list):
            return (_Node(value, self, index) for index, value in enumerate(self.value))
        return iter(())

    def place(self) -> str:
        parts: list[str] = []
        node = self
        while node.parent is not None:
            key = node.key
            plain = isinstance(key, str) and key.isascii() and key.isidentifier()
            parts.append(f".{key}" if plain else f"[{json.dumps(key)}]")
            node = node.parent
        text = "$" + "".join(reversed(parts))
        return text if len(text) <= _LONGEST_PLACE else text[:_LONGEST_PLACE] + "..."


def loads(data: bytes, max_depth: int = MAX_DEPTH) -> object:
    """Read one JSON value.

    max_depth: how many objects and lists may stand inside one another, default 200.

    Raises StrictJSONError, naming line and column (both from 1) of a syntax error and the place
    (`$.scores[3].auc`) of a refused value.
    """
    try:
        value: object = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise StrictJSONError("not_json", f"not UTF-8 at byte {error.start}", offset=error.start) from None
    except json.JSONDecodeError as error:
        message = f"not JSON at line {error.lineno} column {error.colno}: {error.msg}"
        raise StrictJSONError("not_json", message, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise StrictJSONError("not_json", f"nested more than {max_depth} levels deep") from None
    except ValueError as error:  # a whole number of more digits than Python converts
        raise StrictJSONError("not_json", f"not usable as JSON: {error}") from None
    _check(value, max_depth)
    return value


def _check(value: object, max_depth: int) -> None:
    waiting = [_Node(value)]
    while waiting:
        node = waiting.pop()
        found = node.value
        if isinstance(found, float) and not math.isfinite(found):
            name = "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"
            place = node.place()
            raise StrictJSONError(
                "not_finite", f"{name} at {place}; JSON has finite numbers only", place=place
            )
        if not (_is_unicode(found) and _is_unicode(node.key)):
            place = node.place()
            raise StrictJSONError("not_json", f"half a surrogate pair in the text at {place}", place=place)
        children = list(node.children())
        if children and node.depth >= max_depth:
            raise StrictJSONError("not_json", f"nested more than {max_depth} levels deep")
        waiting += reversed(children)  # so that the first offence of the document is the one named


def _is_unicode(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
