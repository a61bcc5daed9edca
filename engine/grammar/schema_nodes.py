"""llguidance's internal form of a schema, reduced to its size.

Sizes are in nodes of llguidance's trees, which copy parts that are shared here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import attrs

from greenroom.engine.grammar import limits

_CHARACTERS_OF_A_NODE = 64  # Estimated characters that take as long to copy as one node


def text_size(text: str) -> int:
    """Return the size in nodes of a text that is copied with its node."""
    return 1 + len(text) // _CHARACTERS_OF_A_NODE


@attrs.frozen(eq=False)
class Leaf:
    """Any value, no value, null, a boolean or a reference. `value`: fixed value of a boolean, or text of a
    reference.
    """

    kind: Literal["any", "none", "null", "boolean", "reference"]
    value: bool | str | None = None
    size: int = 1


@attrs.frozen(eq=False)
class Number:
    """A number that is a multiple of `units` at `decimals` decimals; 0 allows any number."""

    units: int = 0
    decimals: int = 0
    size: int = 1
    kind: Literal["number"] = "number"


@attrs.frozen(eq=False)
class Text:
    """A string.

    Args:
        expressions: Number of regular expressions that it must match, its length limits being one.
    """

    expressions: int = 0
    branches: int = 1
    size: int = 1
    kind: Literal["string"] = "string"


@attrs.frozen(eq=False)
class Array:
    """An array."""

    prefix: tuple[SchemaNode, ...] = ()
    items: SchemaNode | None = None
    slots: int = 0
    size: int = attrs.field(init=False)
    kind: Literal["array"] = "array"

    @size.default
    def _size(self) -> int:
        return 1 + sum(item.size for item in self.prefix) + (self.items.size if self.items else 0)


@attrs.frozen(eq=False)
class Object:
    """An object with properties, patterns and additional properties."""

    properties: Mapping[str, SchemaNode]
    patterns: Mapping[str, SchemaNode]
    additional: SchemaNode | None
    required: tuple[str, ...]
    size: int = attrs.field(init=False)
    kind: Literal["object"] = "object"

    @size.default
    def _size(self) -> int:
        named = (*self.properties.items(), *self.patterns.items())
        size = 1 + sum(part.size + text_size(name) for name, part in named)
        return size + sum(map(text_size, self.required)) + (self.additional.size if self.additional else 0)

    @property
    def undeclared(self) -> list[str]:
        """Required properties without a schema of their own."""
        return [name for name in self.required if name not in self.properties]

    def candidates(self, name: str) -> tuple[SchemaNode, ...]:
        """Return the possible schemas of a property: several if patterns may match its name."""
        if name in self.properties:
            return (self.properties[name],)
        return (*self.patterns.values(), self.additional or ANY)


@attrs.frozen(eq=False)
class Options:
    """One of several shapes."""

    options: tuple[SchemaNode, ...]
    size: int = attrs.field(init=False)
    kind: Literal["anyOf"] = "anyOf"

    @size.default
    def _size(self) -> int:
        return 1 + sum(option.size for option in self.options)


SchemaNode = Leaf | Number | Text | Array | Object | Options

ANY = Leaf("any")
NONE = Leaf("none")


def any_of(options: Iterable[SchemaNode]) -> SchemaNode:
    """Return the `anyOf` of some options, flattened and without empty ones."""
    kept: list[SchemaNode] = []
    for option in options:
        if option is ANY:
            return ANY
        if isinstance(option, Options):
            kept += option.options
        elif option is not NONE:
            kept.append(option)
    return NONE if not kept else kept[0] if len(kept) == 1 else Options(tuple(kept))


class PathTooLongError(Exception):
    """References nest deeper than `limits.MAX_PATH` levels."""


def references_in_order(
    start: Iterable[tuple[str, int]], references_of: Callable[[str], Iterable[tuple[str, int]]]
) -> list[str]:
    """Return all referenced names, each after the names it refers to, except in cycles.

    Args:
        start: Names that the outermost definition refers to, each with its number of enclosing levels.

    Raises:
        PathTooLongError: Compilation would recurse too deep.
    """
    seen: set[str] = set()
    finished: list[str] = []
    path: list[tuple[str, int, Iterator[tuple[str, int]]]] = [("", 0, iter(start))]
    while path:
        name, level, references = path[-1]
        following = next(((found, below) for found, below in references if found not in seen), None)
        if following is None:
            path.pop()
            finished.append(name)
            continue
        found, below = following
        deeper = level + below + 1
        if deeper > limits.MAX_PATH:
            raise PathTooLongError
        seen.add(found)
        path.append((found, deeper, iter(references_of(found))))
    return finished[:-1]
