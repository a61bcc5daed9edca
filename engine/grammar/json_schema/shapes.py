"""What llguidance makes of a schema, as far as its size goes.

The sizes are those of llguidance's trees, in nodes. Here parts are shared, there each is a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import attrs

_CHARACTERS_OF_A_NODE = 64
"""An estimate: as much text as is copied in the time of a node."""


def text_size(text: str) -> int:
    """Return as how many nodes a text counts that is copied with its node."""
    return 1 + len(text) // _CHARACTERS_OF_A_NODE


@attrs.frozen(eq=False)
class Leaf:
    """Any value, none, null, a boolean or a reference.

    Args:
        value: Of a boolean that is fixed; what a reference says.
    """

    kind: Literal["any", "none", "null", "boolean", "reference"]
    value: bool | str | None = None
    size: int = 1


@attrs.frozen(eq=False)
class Number:
    """A number that is a multiple of `units` at `decimals` digits after the point; 0 for any."""

    units: int = 0
    decimals: int = 0
    size: int = 1
    kind: Literal["number"] = "number"


@attrs.frozen(eq=False)
class Text:
    """A string.

    Args:
        expressions: How many regular expressions it has to match, its length being one.
        branches: Product of the numbers of classes in them.
        literal: All of it, where that is fixed.
    """

    expressions: int = 0
    branches: int = 1
    literal: str | None = None
    size: int = 1
    kind: Literal["string"] = "string"


@attrs.frozen(eq=False)
class Array:
    """An array.

    Args:
        slots: Items that are written out one by one in the grammar.
    """

    prefix: tuple[Shape, ...] = ()
    items: Shape | None = None
    slots: int = 0
    size: int = attrs.field(init=False)
    kind: Literal["array"] = "array"

    @size.default
    def _size(self) -> int:
        return 1 + sum(item.size for item in self.prefix) + (self.items.size if self.items else 0)


@attrs.frozen(eq=False)
class Object:
    """An object."""

    properties: Mapping[str, Shape]
    patterns: Mapping[str, Shape]
    additional: Shape | None
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
        """Properties that are required and have no schema of their own."""
        return [name for name in self.required if name not in self.properties]

    def candidates(self, name: str) -> tuple[Shape, ...]:
        """Return the schemas of which one is a property's: more than one where patterns may match it."""
        if name in self.properties:
            return (self.properties[name],)
        return (*self.patterns.values(), self.additional or ANY)


@attrs.frozen(eq=False)
class Options:
    """One of several."""

    kind: Literal["anyOf", "oneOf"]
    options: tuple[Shape, ...]
    size: int = attrs.field(init=False)

    @size.default
    def _size(self) -> int:
        return 1 + sum(option.size for option in self.options)


Shape = Leaf | Number | Text | Array | Object | Options

ANY = Leaf("any")
NONE = Leaf("none")


def any_of(options: Iterable[Shape]) -> Shape:
    """Return the options without those that nothing satisfies, nested ones among the others."""
    kept: list[Shape] = []
    for option in options:
        if option is ANY:
            return ANY
        if isinstance(option, Options) and option.kind == "anyOf":
            kept += option.options
        elif option is not NONE:
            kept.append(option)
    return NONE if not kept else kept[0] if len(kept) == 1 else Options("anyOf", tuple(kept))
