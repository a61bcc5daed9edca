"""Checks of JSON Schemas before compilation, and normalization where llguidance is too lenient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from greenroom.engine.grammar.cost import limits
from greenroom.engine.grammar.cost.budget import ConstraintBudget
from greenroom.engine.grammar.json_schema import keywords
from greenroom.engine.grammar.json_schema.compile_cost import check_compile_cost
from greenroom.engine.grammar.json_schema.json_path import JsonPath, shown
from greenroom.engine.grammar.json_schema.keyword_values import (
    KEYWORD_CHECKS,
    check_number,
    check_text,
    refusal,
)
from greenroom.engine.grammar.json_schema.patterns import portable_pattern, steps_to_parse
from greenroom.engine.grammar.json_schema.references import check_references
from greenroom.schemas.problems import ProblemError

MAX_INTEGER = 9 * 10**18
"""Largest magnitude of integers without bounds, exact as a float, so that every client can read them."""


@attrs.define
class _Walk:
    """State of one schema's check."""

    root: JsonPath
    budget: ConstraintBudget
    references: list[tuple[JsonPath, str]] = attrs.field(factory=list)
    """Place and value of each `$ref`."""

    def count(self, path: JsonPath, text: str) -> str:
        """Return a name or value for llguidance, checked and charged to the budget."""
        self.budget.spend("characters", len(text), self.root)
        return check_text(text, path)


def check_schema(schema: Any, param: str, budget: ConstraintBudget | None = None) -> Any:
    """Return the schema, checked and normalized for llguidance.

    Args:
        schema: Decoded JSON Schema.
        param: Path of the schema in the request, e.g. `response_format.json_schema.schema`.
        budget: Cost budget shared by the request's schemas; a new one if not given.

    Raises:
        ProblemError: 400 that names the path of an unsupported keyword, an invalid schema or an unresolvable
            reference; or of the schema if it is too large.
    """
    root = JsonPath(param)
    walk = _Walk(root, budget or ConstraintBudget())
    checked = _schema(walk, schema, root, 0)
    check_compile_cost(checked, check_references(checked, walk.references), root, walk.budget)
    return checked


def _schema(walk: _Walk, schema: Any, path: JsonPath, depth: int) -> Any:
    walk.budget.spend("subschemas", 1, walk.root)
    if depth > limits.MAX_DEPTH:
        raise refusal(path, f"is nested more than {limits.MAX_DEPTH} levels deep")
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise refusal(path, "must be a JSON Schema: an object or a boolean")
    checked: dict[str, Any] = {}
    references = len(walk.references)
    for keyword, value in schema.items():
        _keyword(walk, checked, keyword, value, path, depth)
    if depth and "$id" in schema and len(walk.references) > references:
        raise refusal(path.key("$id"), "changes what its '$ref' mean, which cannot be honoured")
    _normalize(checked, path)
    return checked


def _keyword(
    walk: _Walk, checked: dict[str, Any], keyword: str, value: Any, path: JsonPath, depth: int
) -> None:
    if keyword in keywords.ANNOTATIONS or keyword.startswith("x-"):
        return
    here = path.key(keyword)
    if keyword in keywords.SCHEMA_MAPS:
        checked[keyword] = _map(walk, keyword, value, here, depth)
    elif keyword in keywords.SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
        checked[keyword] = _list(walk, keyword, value, here, depth)
    elif keyword in keywords.SINGLE_SCHEMAS or keyword == "items":
        checked[keyword] = _schema(walk, value, here, depth + 1)
    elif keyword == "$ref":
        checked[keyword] = _reference(walk, value, here)
    elif keyword in ("enum", "const"):
        _values(walk, keyword, value, here)
        checked[keyword] = value
    elif keyword in KEYWORD_CHECKS:
        checked[keyword] = _checked(walk, keyword, value, here)
    elif not (keyword == "uniqueItems" and value is False):
        raise _unsupported(keyword, here)


def _unsupported(keyword: str, path: JsonPath) -> ProblemError:
    honoured = ", ".join(sorted(keywords.SUPPORTED))
    why = f"is the JSON Schema keyword '{shown(keyword)}', which cannot be honoured; remove it."
    return refusal(path, f"{why} Honoured are: {honoured}.", "unsupported_schema")


def _checked(walk: _Walk, keyword: str, value: Any, path: JsonPath) -> Any:
    checked = KEYWORD_CHECKS[keyword](value, path)
    if keyword in ("pattern", "required"):
        walk.budget.spend("characters", sum(map(len, checked)), walk.root)
    if keyword == "pattern":
        walk.budget.spend("steps of work", steps_to_parse(checked), walk.root)
    return checked


def _map(walk: _Walk, keyword: str, value: Any, path: JsonPath, depth: int) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise refusal(path, "must be an object")
    most = {"properties": limits.MAX_PROPERTIES, "patternProperties": limits.MAX_PATTERN_PROPERTIES}
    if len(value) > most.get(keyword, limits.MAX_NODES):
        raise refusal(path, f"has more than {most.get(keyword, limits.MAX_NODES)} entries")
    checked = {}
    for name, schema in value.items():
        walk.count(path, name)
        here = path.key(name)
        written = name
        if keyword == "patternProperties":
            written = portable_pattern(name, str(here))
            walk.budget.spend("steps of work", steps_to_parse(written), walk.root)
        checked[written] = _schema(walk, schema, here, depth + 1)
    return checked


def _list(walk: _Walk, keyword: str, value: Any, path: JsonPath, depth: int) -> list[Any]:
    if not isinstance(value, list) or (not value and keyword != "prefixItems"):
        raise refusal(path, "must be a list of schemas")
    return [_schema(walk, schema, path.item(index), depth + 1) for index, schema in enumerate(value)]


def _reference(walk: _Walk, value: Any, path: JsonPath) -> str:
    if not isinstance(value, str):
        raise refusal(path, "must be a string")
    if value != "#" and not value.startswith("#/"):
        raise refusal(path, f"is '{shown(value)}'; only references inside the schema ('#/…') work here")
    walk.count(path, value)
    walk.references.append((path, value))
    return value


def _values(walk: _Walk, keyword: str, value: Any, path: JsonPath) -> None:
    if keyword == "const":
        _value(walk, value, path, 0)
    elif not isinstance(value, list) or not value:
        raise refusal(path, "must be a list with at least one value")
    else:
        for index, item in enumerate(value):
            _value(walk, item, path.item(index), 0)


def _value(walk: _Walk, value: Any, path: JsonPath, depth: int) -> None:
    walk.budget.spend("listed values", 1, walk.root)
    if depth > limits.MAX_DEPTH:
        raise refusal(path, f"is nested more than {limits.MAX_DEPTH} levels deep")
    if isinstance(value, list):
        for index, item in enumerate(value):
            _value(walk, item, path.item(index), depth + 1)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            walk.count(path, name)
            _value(walk, item, path.key(name), depth + 1)
    elif isinstance(value, str):
        walk.count(path, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        check_number(value, path)


def _normalize(checked: dict[str, Any], path: JsonPath) -> None:
    """Tighten keywords that llguidance enforces too loosely; refuse those that it cannot enforce."""
    exact = keywords.FORMAT_PATTERNS.get(checked.get("format", ""))
    if exact is not None:
        del checked["format"]
        checked["allOf"] = [*checked.get("allOf", ()), {"pattern": exact}]
    longest = keywords.FORMAT_MAX_LENGTHS.get(checked.get("format", ""))
    if longest is not None:
        checked["maxLength"] = min(longest, checked.get("maxLength", longest))
    types = checked.get("type", ())
    if "integer" in ([types] if isinstance(types, str) else types) and "number" not in types:
        _bound_integers(checked)
    # Undeclared keys may repeat, and repeats count once.
    highest_minimum = len(set(checked.get("required", ()))) + 1
    if checked.get("minProperties", 0) > highest_minimum:
        why = f"is {checked['minProperties']}; more than the required properties and one cannot be honoured"
        raise refusal(path.key("minProperties"), why, "unsupported_schema")


def _bound_integers(checked: dict[str, Any]) -> None:
    if not {"minimum", "exclusiveMinimum"} & checked.keys():
        checked["minimum"] = -MAX_INTEGER
    if not {"maximum", "exclusiveMaximum"} & checked.keys():
        checked["maximum"] = MAX_INTEGER
