"""Estimate of llguidance's work on a schema, made before it compiles the schema.

llguidance compiles a schema natively on one thread and can be neither interrupted nor limited: a schema of 4
kB can take forever (copies, intersections and comparisons multiply), and a long chain of references overflows
its stack. The sizes of its structures are therefore computed first, each repeated part only once (llguidance
1.9: `json/schema.rs`, `json/compiler.rs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final

from greenroom.engine.grammar.cost import limits
from greenroom.engine.grammar.cost.budget import ConstraintBudget
from greenroom.engine.grammar.cost.reference_paths import PathTooLongError, references_in_order
from greenroom.engine.grammar.json_schema import keywords
from greenroom.engine.grammar.json_schema.intersection import Intersections
from greenroom.engine.grammar.json_schema.json_path import JsonPath, shown
from greenroom.engine.grammar.json_schema.keyword_values import multiple_units
from greenroom.engine.grammar.json_schema.patterns import count_classes
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
    text_size,
)
from greenroom.schemas.problems import invalid

_APPLICATORS: Final = ("const", "enum", "allOf", "anyOf", "$ref")
_DEFINITIONS: Final = ("$defs", "definitions")
_ITEMS_OF_A_STEP: Final = 20
"""Number of array items that a grammar writes out in the time of one step."""


def check_compile_cost(
    schema: Any, targets: Mapping[str, Any], root: JsonPath, budget: ConstraintBudget
) -> None:
    """Refuse a checked schema whose compilation takes too much time, memory or stack.

    Args:
        schema: Checked schema.
        targets: Target subschema of each reference, by the value of its `$ref`.
        root: Place of the schema in the request.
        budget: Budget of steps.

    Raises:
        ProblemError: 400 that names the schema.
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
    """Return the references in a schema in compile order, with their levels."""
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
        elif keyword in keywords.SCHEMA_LISTS:
            for part in value:
                found += _references(part, level + 1)
    return found


def _parts(group: Mapping[str, Any]) -> list[Any]:
    """Return the subschemas of keywords that are compiled together."""
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
        """Build the target of a reference once."""
        self._definitions[said] = self.build(self._targets[said])
        self.visit(self._definitions[said])

    def build(self, schema: Any) -> SchemaNode:
        """Return the shape of a schema."""
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
        types = schema.get("type", keywords.TYPES)
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
                return Text(literal=value, size=text_size(value))
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
        """Return the number of optional properties before an object's first required one."""
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
