"""Cost of llguidance's check that the branches of a `oneOf` exclude one another, in comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product

from greenroom.engine.grammar.json_schema.schema_nodes import (
    ANY,
    NONE,
    Leaf,
    Object,
    Options,
    SchemaNode,
    Text,
    any_of,
)


class Comparisons:
    """Compares shapes as llguidance does, and counts the comparisons that it would repeat.

    Args:
        step: Callback that takes a number of comparisons and raises if there are too many.
    """

    def __init__(self, step: Callable[[int], None]) -> None:
        self._step = step
        self._known: dict[tuple[int, int], tuple[bool, int]] = {}
        self._compared: list[SchemaNode] = []

    def one_of(self, options: Iterable[SchemaNode]) -> SchemaNode:
        """Return the `oneOf` of some options, as llguidance normalizes it."""
        kept: list[SchemaNode] = []
        for option in options:
            if isinstance(option, Options) and option.kind == "oneOf":
                kept += option.options
            elif option is not NONE:
                kept.append(option)
        if len(kept) < 2:
            return kept[0] if kept else NONE
        self._step(len(kept) * (len(kept) - 1) // 2)
        exclusive = all(self._exclude_and_step(a, b) for a, b in combinations(kept, 2))
        return any_of(kept) if exclusive else Options("oneOf", tuple(kept))

    def _exclude_and_step(self, one: SchemaNode, other: SchemaNode) -> bool:
        known = len(self._known)
        exclusive, steps = self._exclude(one, other)
        # First comparisons have already been counted.
        self._step(max(0, steps - (len(self._known) - known)))
        return exclusive

    def _exclude(self, one: SchemaNode, other: SchemaNode) -> tuple[bool, int]:
        """Return whether two shapes exclude one another, and the comparisons needed to decide."""
        key = (id(one), id(other))
        if key not in self._known:
            self._step(1)
            self._compared += (one, other)  # Keeps the shapes alive, so that their ids stay unique.
            self._known[key] = self._compare(one, other)
        return self._known[key]

    def _compare(self, one: SchemaNode, other: SchemaNode) -> tuple[bool, int]:
        if one is NONE or other is NONE:
            return True, 1
        if one is ANY or other is ANY or "reference" in (one.kind, other.kind):
            return False, 1
        if isinstance(one, Leaf) and isinstance(other, Leaf) and one.kind == other.kind == "boolean":
            return None not in (one.value, other.value) and one.value != other.value, 1
        for kind in ("anyOf", "oneOf"):
            if isinstance(one, Options) and one.kind == kind:
                return self._all((option, other) for option in one.options)
            if isinstance(other, Options) and other.kind == kind:
                return self._all((one, option) for option in other.options)
        if isinstance(one, Text) and isinstance(other, Text):
            return None not in (one.literal, other.literal) and one.literal != other.literal, 1
        if isinstance(one, Object) and isinstance(other, Object):
            return self._any_property(one, other)
        return one.kind != other.kind, 1

    def _all(self, pairs: Iterable[tuple[SchemaNode, SchemaNode]]) -> tuple[bool, int]:
        steps = 1
        for pair in pairs:
            exclusive, more = self._exclude(*pair)
            steps += more
            if not exclusive:
                return False, steps
        return True, steps

    def _any_property(self, one: Object, other: Object) -> tuple[bool, int]:
        steps = 1
        for name in dict.fromkeys((*one.required, *other.required)):
            pairs = list(product(one.candidates(name), other.candidates(name)))
            outcomes = [self._exclude(*pair) for pair in pairs]
            steps += sum(more for _, more in outcomes)
            if all(exclusive for exclusive, _ in outcomes):
                return True, steps
        return False, steps
