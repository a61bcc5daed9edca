"""Estimate of llguidance's work on a schema, made before it compiles the schema.

llguidance compiles a schema natively on one thread and can be neither interrupted nor limited: a schema of 4
kB can take forever (copies, intersections and comparisons multiply), and a long chain of references overflows
its stack. The sizes of its structures are therefore computed first, each repeated part only once (llguidance
1.9: `json/schema.rs`, `json/compiler.rs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, Final

from greenroom.engine.grammar import limits, schema_keywords
from greenroom.engine.grammar.limits import ConstraintBudget
from greenroom.engine.grammar.patterns import JsonPath, count_classes, shown
from greenroom.engine.grammar.schema_keywords import is_countable, multiple_units
from greenroom.engine.grammar.schema_nodes import (
    ANY,
    NONE,
    Array,
    Leaf,
    Number,
    Object,
    Options,
    PathTooLongError,
    SchemaNode,
    Text,
    any_of,
    references_in_order,
    text_size,
)
from greenroom.schemas.problems import ProblemError, invalid

_APPLICATORS: Final = ("const", "enum", "allOf", "anyOf", "$ref")
_DEFINITIONS: Final = ("$defs", "definitions")
_ITEMS_OF_A_STEP: Final = 20  # Number of array items that a grammar writes out in the time of one step


def check_compile_cost(
    schema: Any, targets: Mapping[str, Any], root: JsonPath, budget: ConstraintBudget
) -> None:
    """Refuse a checked schema whose compilation takes too much time, memory or stack. `targets`: target
    subschema of each reference, by the value of its `$ref`. Raises ProblemError: 400 that names the schema.
    """
    cost = _CompileCost(targets, root, budget)
    try:
        order = references_in_order(_references(schema), lambda said: cost.references(targets[said]))
    except PathTooLongError:
        detail = f"The references in {root} lead through more than {limits.MAX_PATH} levels"
        raise invalid(detail, str(root), "schema_too_large") from None
    for said in order:
        cost.define(said)
    cost.visit(cost.build(schema))


def _references(schema: Any, level: int = 0) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    if not isinstance(schema, Mapping):
        return found
    group: dict[str, Any] = {}
    for keyword, value in (*schema.items(), ("", None)):
        if keyword and keyword not in _APPLICATORS:
            group[keyword] = value
            continue
        for part in _parts(group):
            found += _references(part, level + 1)
        group = {}
        if keyword == "$ref":
            found.append((value, level))
        elif keyword in schema_keywords.SCHEMA_LISTS:
            for part in value:
                found += _references(part, level + 1)
    return found


def _parts(group: Mapping[str, Any]) -> list[Any]:
    parts: list[Any] = [*group.get("prefixItems", ())]
    items = group.get("items")
    parts += items if isinstance(items, list) else [items]
    parts += [group.get("additionalItems")]
    for keyword in ("properties", "patternProperties"):
        parts += group.get(keyword, {}).values()
    return [*parts, group.get("additionalProperties")]


class _CompileCost:
    def __init__(self, targets: Mapping[str, Any], root: JsonPath, budget: ConstraintBudget) -> None:
        self._targets = targets
        self._root = root
        self._budget = budget
        self._definitions: dict[str, SchemaNode] = {}
        self._visits: dict[int, int] = {}
        self._sets = Intersections(self._step, self._resolve, root)

    def references(self, schema: Any) -> list[tuple[str, int]]:
        """Return the references in a definition, with their levels."""
        found = _references(schema)
        self._step(len(found) + 1)
        return found

    def define(self, said: str) -> None:
        self._definitions[said] = self.build(self._targets[said])
        self.visit(self._definitions[said])

    def build(self, schema: Any) -> SchemaNode:
        if not isinstance(schema, Mapping):
            return ANY if schema else NONE
        self._step(1)
        result: SchemaNode = ANY
        group: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in _APPLICATORS:
                result = self._apply(self._with_group(result, group, schema), keyword, value)
                group = {}
            elif keyword not in _DEFINITIONS:
                group[keyword] = value
                if keyword == "additionalProperties" and "properties" in schema:
                    group.setdefault("properties", dict.fromkeys(schema["properties"], True))
                if keyword == "items" and "prefixItems" in schema:
                    group.setdefault("prefixItems", [True] * len(schema["prefixItems"]))
        return self._with_group(result, group, schema)

    def visit(self, node: SchemaNode) -> None:
        """Count the steps of writing a shape as a grammar."""
        self._step(self._count_visits(node))

    def _step(self, steps: int) -> None:
        self._budget.spend("steps of work", steps, self._root)

    def _with_group(self, result: SchemaNode, group: dict[str, Any], schema: Mapping[str, Any]) -> SchemaNode:
        """Intersect a shape with the keywords since the last applicator."""
        if not group:
            return result
        types = schema.get("type", schema_keywords.TYPES)
        kinds = dict.fromkeys([types] if isinstance(types, str) else types)
        options = [self._of_type(kind, group) for kind in kinds]
        return self._sets.intersect(result, options[0] if len(options) == 1 else any_of(options))

    def _of_type(self, kind: str, group: Mapping[str, Any]) -> SchemaNode:
        self._step(1)
        match kind:
            case "null":
                return Leaf("null")
            case "boolean":
                return Leaf("boolean")
            case "integer" | "number":
                return Number(*(multiple_units(group["multipleOf"]) if "multipleOf" in group else (0, 0)))
            case "string":
                return _text_of(group)
            case "array":
                return self._array(group)
            case _:
                return self._object(group)

    def _array(self, group: Mapping[str, Any]) -> Array:
        items = group.get("items")
        prefix = items if isinstance(items, list) else group.get("prefixItems", ())
        following = group.get("additionalItems") if isinstance(items, list) else items
        slots = group.get("maxItems", max(len(prefix), group.get("minItems", 0)))
        return Array(
            tuple(map(self.build, prefix)), None if following is None else self.build(following), slots
        )

    def _object(self, group: Mapping[str, Any]) -> Object:
        properties = {name: self.build(part) for name, part in group.get("properties", {}).items()}
        patterns = {name: self.build(part) for name, part in group.get("patternProperties", {}).items()}
        if patterns:
            for name, part in properties.items():
                for pattern in patterns.values():
                    self._step(pattern.size)
                    merged = self._sets.intersect(part, pattern)
                    properties[name] = max(properties[name], merged, key=lambda node: node.size)
        following = group.get("additionalProperties")
        additional = None if following is None else self.build(following)
        required = tuple(dict.fromkeys(group.get("required", ())))
        return self._sets.checked(Object(properties, patterns, additional, required))

    def _apply(self, result: SchemaNode, keyword: str, value: Any) -> SchemaNode:
        match keyword:
            case "const":
                return self._sets.intersect(result, self._constant(value))
            case "enum":
                return self._sets.intersect(result, any_of(map(self._constant, value)))
            case "allOf":
                for part in value:
                    result = self._sets.intersect(result, self.build(part))
                return result
            case "anyOf":
                return self._sets.intersect(result, any_of(map(self.build, value)))
            case _:
                reference = Leaf("reference", value, text_size(value))
                return reference if result is ANY else self._sets.intersect(result, reference)

    def _constant(self, value: Any) -> SchemaNode:
        self._step(1)
        match value:
            case None:
                return Leaf("null")
            case bool():
                return Leaf("boolean", value)
            case int() | float():
                return Number()
            case str():
                return Text(size=text_size(value))
            case list():
                return Array(tuple(map(self._constant, value)), NONE)
            case _:
                properties = {name: self._constant(part) for name, part in value.items()}
                return Object(properties, {}, NONE, tuple(properties))

    def _resolve(self, reference: Leaf) -> SchemaNode:
        said = str(reference.value)
        if said not in self._definitions:
            why = f"leads back to itself beside other keywords ('{shown(said)}'), which cannot be honoured"
            raise invalid(f"A reference in {self._root} {why}", str(self._root), "unsupported_schema")
        return self._definitions[said]

    def _count_visits(self, node: SchemaNode) -> int:
        known = self._visits.get(id(node))
        if known is not None:
            return known
        match node:
            case Options(options=options):
                self._check_alternatives(options)
                visits = 1 + sum(map(self._count_visits, options))
            case Array(prefix=prefix, items=items, slots=slots):
                visits = 1 + slots // _ITEMS_OF_A_STEP + sum(map(self._count_visits, (*prefix, items or ANY)))
            case Object():
                visits = self._count_object(node)
            case _:
                visits = 1
        self._visits[id(node)] = visits
        return visits

    def _check_alternatives(self, options: tuple[SchemaNode, ...]) -> None:
        """Refuse alternatives with too many properties that may come first at the same text position."""
        most = limits.MAX_PROPERTIES
        if sum(map(self._count_first, options)) > most:
            detail = f"Alternatives in {self._root} have more than {most} optional properties together"
            raise invalid(detail, str(self._root), "schema_too_large")

    def _count_first(self, node: SchemaNode) -> int:
        if isinstance(node, Leaf) and node.kind == "reference":
            node = self._definitions.get(str(node.value), node)
        if not isinstance(node, Object):
            return 0
        required = {*node.required}
        return sum(1 for _ in takewhile(lambda name: name not in required, node.properties))

    def _count_object(self, node: Object) -> int:
        count = self._count_visits
        named = sum(map(count, (*node.properties.values(), *node.patterns.values())))
        undeclared = sum(max(map(count, node.candidates(name))) for name in node.undeclared)
        return 1 + named + undeclared + count(node.additional or ANY)


def _text_of(group: Mapping[str, Any]) -> Text:
    pattern = group.get("pattern")
    others = ("format" in group) + ("minLength" in group or "maxLength" in group)
    branches = 1 if pattern is None else count_classes(pattern)
    size = 1 if pattern is None else 1 + text_size(pattern)
    return Text((pattern is not None) + others, branches * 2**others, size=size)


_MAX_LEVELS = 128  # Limit on levels after which llguidance fails

STEPS_OF_A_PATTERN_PAIR = 100  # Estimated steps to compare two patterns, which takes an automaton of both


class Intersections:
    """Intersects shapes as llguidance does. `step`: callback that takes a number of steps and raises if there
    are too many.
    """

    def __init__(
        self, step: Callable[[int], None], resolve: Callable[[Leaf], SchemaNode], param: object
    ) -> None:
        self._step = step
        self._resolve = resolve
        self._param = param

    def intersect(self, one: SchemaNode, other: SchemaNode, level: int = 0) -> SchemaNode:
        """Return the intersection of two shapes. Raises ProblemError: 400 if llguidance cannot compute it, or
        only with too much work.
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
