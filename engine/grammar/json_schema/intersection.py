"""Sizes of llguidance's schema intersections: `allOf`, and keywords beside one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from greenroom.engine.grammar.cost import limits
from greenroom.engine.grammar.json_schema.keyword_values import is_countable
from greenroom.engine.grammar.json_schema.schema_nodes import (
    ANY,
    NONE,
    Array,
    Leaf,
    Number,
    Object,
    Options,
    SchemaNode,
    Text,
    any_of,
)
from greenroom.schemas.problems import ProblemError, invalid

_MAX_LEVELS = 128
"""Limit on levels after which llguidance fails."""

STEPS_OF_A_PATTERN_PAIR = 100
"""Estimated steps to compare two patterns, which takes an automaton of both."""


class Intersections:
    """Intersects shapes as llguidance does.

    Args:
        step: Callback that takes a number of steps and raises if there are too many.
        resolve: Function that returns the target of a reference.
        param: Path of the schema in the request.
    """

    def __init__(
        self, step: Callable[[int], None], resolve: Callable[[Leaf], SchemaNode], param: object
    ) -> None:
        self._step = step
        self._resolve = resolve
        self._param = param

    def intersect(self, one: SchemaNode, other: SchemaNode, level: int = 0) -> SchemaNode:
        """Return the intersection of two shapes.

        Raises:
            ProblemError: 400 if llguidance cannot compute it, or only with too much work.
        """
        self._step(1)
        if level > _MAX_LEVELS:
            raise self._refusal("are intersected through too many levels")
        if one is ANY or other is ANY:
            return other if one is ANY else one
        if one is NONE or other is NONE:
            return NONE
        for node, beside, swapped in ((one, other, False), (other, one, True)):
            if isinstance(node, Leaf) and node.kind == "reference":
                target = self._resolve(node)
                self._step(target.size)
                pair = (beside, target) if swapped else (target, beside)
                return self.intersect(*pair, level + 2)
        for node, beside, swapped in ((one, other, False), (other, one, True)):
            if isinstance(node, Options):
                return self._distribute(node, beside, swapped, level)
        return self._intersect_alike(one, other, level)

    def _distribute(self, options: Options, beside: SchemaNode, swapped: bool, level: int) -> SchemaNode:
        self._step(len(options.options) * beside.size)
        parts = [
            self.intersect(*((beside, option) if swapped else (option, beside)), level + 1)
            for option in options.options
        ]
        return any_of(parts)

    def _intersect_alike(self, one: SchemaNode, other: SchemaNode, level: int) -> SchemaNode:
        if isinstance(one, Number) and isinstance(other, Number):
            return self._numbers(one, other)
        if isinstance(one, Text) and isinstance(other, Text):
            return self._texts(one, other)
        if isinstance(one, Array) and isinstance(other, Array):
            return self._arrays(one, other, level)
        if isinstance(one, Object) and isinstance(other, Object):
            return self._objects(one, other, level)
        if one.kind != other.kind:
            return NONE
        return one if isinstance(one, Leaf) and one.value is not None else other

    def _numbers(self, one: Number, other: Number) -> Number:
        if not (one.units and other.units):
            return one if one.units else other
        decimals = max(one.decimals, other.decimals)
        scaled = (number.units * 10 ** (decimals - number.decimals) for number in (one, other))
        units = math.lcm(*scaled)
        if not is_countable(units, decimals):
            raise self._refusal(f"have multiples in common of {units:,}/10^{decimals}, too many to count")
        return Number(units, decimals)

    def _texts(self, one: Text, other: Text) -> Text:
        expressions, branches = one.expressions + other.expressions, one.branches * other.branches
        if branches > limits.MAX_BRANCHES or expressions > limits.MAX_INTERSECTED:
            raise self._refusal(
                f"hold one text to {expressions} patterns at once; at most {limits.MAX_INTERSECTED} with "
                f"{limits.MAX_BRANCHES:,} combinations of their classes can be honoured"
            )
        return Text(expressions, branches, size=one.size + other.size)

    def _arrays(self, one: Array, other: Array, level: int) -> Array:
        prefix = tuple(
            self.intersect(_item(one, index), _item(other, index), level + 1)
            for index in range(max(len(one.prefix), len(other.prefix)))
        )
        self._step(sum(item.size for item in prefix))
        items = self._both(one.items, other.items, level)
        return Array(prefix, items, max(one.slots, other.slots))

    def _objects(self, one: Object, other: Object, level: int) -> Object:
        properties = {}
        for name in dict.fromkeys((*one.properties, *other.properties)):
            properties[name] = self._property(one.candidates(name), other.candidates(name), level)
        patterns = self._patterns(one, other, level)
        additional = self._both(one.additional, other.additional, level)
        required = tuple(dict.fromkeys((*one.required, *other.required)))
        return self.checked(Object(properties, patterns, additional, required))

    def checked(self, node: Object) -> Object:
        """Refuse an object with too many properties or patterns."""
        if len(node.properties) + len(node.undeclared) > limits.MAX_PROPERTIES:
            raise self._refusal(f"give one object more than {limits.MAX_PROPERTIES} properties")
        if len(node.patterns) > limits.MAX_PATTERN_PROPERTIES:
            raise self._refusal(f"give one object more than {limits.MAX_PATTERN_PROPERTIES} patterns")
        pairs = len(node.patterns) * (len(node.patterns) - 1) // 2
        self._step(pairs * STEPS_OF_A_PATTERN_PAIR + len(node.patterns) * len(node.properties))
        return node

    def _property(self, one: tuple[SchemaNode, ...], other: tuple[SchemaNode, ...], level: int) -> SchemaNode:
        """Return the largest shape that a property's schema may become."""
        largest: SchemaNode = NONE
        for first in one:
            for second in other:
                self._step(min(first.size, second.size))
                found = self.intersect(first, second, level + 1)
                self._step(found.size)
                largest = found if found.size >= largest.size else largest
        return largest

    def _patterns(self, one: Object, other: Object, level: int) -> Mapping[str, SchemaNode]:
        found: dict[str, SchemaNode] = {}
        for pattern in dict.fromkeys((*one.patterns, *other.patterns)):
            first = one.patterns.get(pattern, one.additional)
            second = other.patterns.get(pattern, other.additional)
            self._step(sum(part.size for part in (first, second) if part))
            found[pattern] = self._both(first, second, level) or ANY
        return found

    def _both(self, one: SchemaNode | None, other: SchemaNode | None, level: int) -> SchemaNode | None:
        return self.intersect(one, other, level + 1) if one and other else one or other

    def _refusal(self, why: str) -> ProblemError:
        detail = f"{self._param} cannot be honoured: its combined subschemas {why}"
        return invalid(detail, str(self._param), "unsupported_schema")


def _item(array: Array, index: int) -> SchemaNode:
    return array.prefix[index] if index < len(array.prefix) else array.items or ANY
