"""Compact descriptions of huge bodies, which reports can print and searches can shrink."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import attrs


@attrs.frozen
class Repeated:
    """An array of `count` equal items."""

    item: Any
    count: int


@attrs.frozen
class Text:
    """A string repeated `count` times."""

    text: str
    count: int


@attrs.frozen
class Members:
    """An object of `count` members with equal values."""

    value: Any
    count: int


@attrs.frozen
class Nested:
    """`count` nested arrays or objects."""

    opening: str
    count: int


@attrs.frozen
class Literal:
    """JSON text, valid or not, sent unchanged."""

    text: str


@attrs.frozen
class Bytes:
    """Bytes repeated `count` times; they need not be JSON or text."""

    data: bytes
    count: int = 1

    def whole(self) -> bytes:
        """Return all the bytes."""
        return self.data * self.count


@attrs.frozen
class Made:
    """The result of a maker (of schemas, grammars or patterns) for a size."""

    maker: str
    size: int


Maker = Callable[[int], Any]


NESTING = 20_000
"""Recursion limit while encoding: some makers nest a thousand levels deep."""


def encode(value: Any, makers: Mapping[str, Maker]) -> str:
    """Return the JSON text of a value that may contain pieces."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, NESTING))
    try:
        return _encode(value, makers)
    finally:
        sys.setrecursionlimit(before)


def _encode(value: Any, makers: Mapping[str, Maker]) -> str:
    match value:
        case Repeated(item, count):
            return f"[{','.join([_encode(item, makers)] * count)}]"
        case Text(text, count):
            return f'"{json.dumps(text)[1:-1] * count}"'
        case Members(item, count):
            text = _encode(item, makers)
            return "{" + ",".join(f'"m{i}":{text}' for i in range(count)) + "}"
        case Nested(opening, count):
            return opening * count + "0" + {"[": "]", "{": "}"}[opening[0]] * count
        case Literal(text):
            return text
        case Made(maker, size):
            return _encode(makers[maker](size), makers)
        case dict():
            # Use lists: calls within generators count as C recursion, and Python 3.12 allows fewer of those.
            members = [f"{json.dumps(name)}:{_encode(of, makers)}" for name, of in value.items()]
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            return f"[{','.join([_encode(item, makers) for item in value])}]"
    return json.dumps(value)


def makers_in(value: Any) -> frozenset[str]:
    """Return the names of the makers in a value."""
    match value:
        case Made(maker, _):
            return frozenset({maker})
        case dict():
            return frozenset().union(*map(makers_in, value.values()))
        case list() | tuple():
            return frozenset().union(*map(makers_in, value))
        case Repeated(item, _) | Members(item, _):
            return makers_in(item)
    return frozenset()


def is_plain(value: Any) -> bool:
    """Return whether a value contains no piece."""
    match value:
        case dict():
            return all(map(is_plain, value.values()))
        case list() | tuple():
            return all(map(is_plain, value))
    return value is None or isinstance(value, str | int | float)
