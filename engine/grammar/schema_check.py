"""Checks a JSON Schema before it is compiled, and normalizes what llguidance would enforce too loosely."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import attrs

from greenroom.engine.grammar import limits, schema_keywords
from greenroom.engine.grammar.patterns import portable_pattern
from greenroom.schemas.problems import ProblemError, invalid

MAX_INTEGER = 9 * 10**18
"""Integers without bounds stay below it, so that every client can read them (exact as a float)."""

_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]|[\ud800-\udfff]")


@attrs.define
class _Walk:
    """One schema on its way through the check."""

    param: str
    base: str
    nodes: int = 0
    values: int = 0
    schemas: dict[str, Any] = attrs.field(factory=dict)
    """Checked subschemas by JSON pointer."""

    refs: list[tuple[str, str]] = attrs.field(factory=list)
    """Path of each `$ref`, and the pointer that it names."""


def check_schema(schema: Any, param: str, base: str = "#") -> Any:
    """Return the schema, checked and normalized for llguidance.

    Args:
        schema: A decoded JSON Schema.
        param: Where the request holds it, e.g. `response_format.json_schema.schema`.
        base: JSON pointer at which the result will stand inside a larger schema.

    Raises:
        ProblemError: 400 that names the path of a keyword that cannot be honoured, of a value that is no
            schema, or of a reference that leads nowhere or outside.
    """
    walk = _Walk(param, base)
    checked = _schema(walk, schema, param, "", 0)
    for path, pointer in walk.refs:
        if pointer not in walk.schemas:
            raise invalid(f"{path} refers to '#{pointer}', where no schema stands", path)
    return checked


def _schema(walk: _Walk, schema: Any, path: str, pointer: str, depth: int) -> Any:
    walk.nodes += 1
    if walk.nodes > limits.MAX_NODES:
        raise invalid(f"The schema has more than {limits.MAX_NODES} subschemas", walk.param)
    if depth > limits.MAX_DEPTH:
        raise invalid(f"The schema is nested more than {limits.MAX_DEPTH} levels deep", path)
    if not isinstance(schema, bool | Mapping):
        raise invalid(f"{path} must be a JSON Schema: an object or a boolean", path)
    checked: Any = schema
    if isinstance(schema, Mapping):
        checked = {}
        for keyword, value in schema.items():
            _keyword(walk, checked, keyword, value, path, pointer, depth)
        if pointer and "$id" in schema and "$ref" in _all_names(schema):
            raise invalid(f"{path}.$id changes what its '$ref' mean, which cannot be honoured", f"{path}.$id")
        _normalize(checked, path)
    walk.schemas[pointer] = checked
    return checked


def _keyword(
    walk: _Walk, checked: dict[str, Any], keyword: str, value: Any, path: str, pointer: str, depth: int
) -> None:
    here, point = f"{path}.{keyword}", f"{pointer}/{keyword}"
    if keyword in schema_keywords.ANNOTATIONS or keyword.startswith("x-"):
        return
    if keyword in schema_keywords.SCHEMA_MAPS:
        checked[keyword] = _map(walk, keyword, value, here, point, depth)
    elif keyword in schema_keywords.SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
        checked[keyword] = _list(walk, keyword, value, here, point, depth)
    elif keyword in schema_keywords.SINGLE_SCHEMAS or keyword == "items":
        checked[keyword] = _schema(walk, value, here, point, depth + 1)
    elif keyword == "$ref":
        checked[keyword] = _reference(walk, value, here)
    elif keyword in ("enum", "const"):
        _values(walk, value, here, as_list=keyword == "enum")
        checked[keyword] = value
    elif keyword in _SIMPLE:
        checked[keyword] = _SIMPLE[keyword](value, here)
    elif not (keyword == "uniqueItems" and value is False):
        raise _unsupported(keyword, here)


def _unsupported(keyword: str, path: str) -> ProblemError:
    detail = (
        f"The JSON Schema keyword '{keyword}' at {path} cannot be honoured; remove it. "
        f"Honoured are: {', '.join(sorted(schema_keywords.SUPPORTED))}."
    )
    return invalid(detail, path, "unsupported_schema")


def _map(walk: _Walk, keyword: str, value: Any, path: str, pointer: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid(f"{path} must be an object", path)
    if len(value) > limits.MAX_PROPERTIES and keyword in ("properties", "patternProperties"):
        raise invalid(f"{path} has more than {limits.MAX_PROPERTIES} entries", path)
    checked = {}
    for name, schema in value.items():
        _text(name, path)
        is_pattern = keyword == "patternProperties"
        narrow = portable_pattern(name, f"{path}.{name}") if is_pattern else name
        escaped = name.replace("~", "~0").replace("/", "~1")
        checked[narrow] = _schema(walk, schema, f"{path}.{name}", f"{pointer}/{escaped}", depth + 1)
    return checked


def _list(walk: _Walk, keyword: str, value: Any, path: str, pointer: str, depth: int) -> list[Any]:
    if not isinstance(value, list) or (not value and keyword != "prefixItems"):
        raise invalid(f"{path} must be a list of schemas", path)
    return [
        _schema(walk, schema, f"{path}[{index}]", f"{pointer}/{index}", depth + 1)
        for index, schema in enumerate(value)
    ]


def _reference(walk: _Walk, value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise invalid(f"{path} must be a string", path)
    if value != "#" and not value.startswith("#/"):
        raise invalid(f"{path} is '{value}'; only references inside the schema ('#/…') work here", path)
    pointer = unquote(value[1:])
    walk.refs.append((path, pointer))
    return walk.base + value[1:]


def _values(walk: _Walk, value: Any, path: str, *, as_list: bool) -> None:
    if as_list and (not isinstance(value, list) or not value):
        raise invalid(f"{path} must be a list with at least one value", path)
    walk.values += not as_list
    if walk.values > limits.MAX_VALUES:
        raise invalid(f"The schema lists more than {limits.MAX_VALUES} values", walk.param)
    if isinstance(value, list):
        for index, item in enumerate(value):
            _values(walk, item, f"{path}[{index}]", as_list=False)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _text(name, path)
            _values(walk, item, f"{path}.{name}", as_list=False)
    elif isinstance(value, str):
        _text(value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _number(value, path)


def _number(value: Any, path: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise invalid(f"{path} must be a number", path)
    if abs(value) > limits.MAX_EXACT_INTEGER:
        raise invalid(f"{path} is {value}; numbers beyond 2**53 cannot be honoured exactly", path)
    return value


def _multiple(value: Any, path: str) -> int | float:
    if _number(value, path) <= 0:
        raise invalid(f"{path} must be above 0", path)
    return _number(value, path)


def _count(value: Any, path: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise invalid(f"{path} must be a whole number from 0", path)
    if value > limits.MAX_COUNT:
        raise invalid(f"{path} is {value}; at most {limits.MAX_COUNT} can be honoured", path)
    return value


def _type(value: Any, path: str) -> Any:
    names = value if isinstance(value, list) else [value]
    if not names or any(name not in schema_keywords.TYPES for name in names):
        raise invalid(f"{path} must be one or more of {', '.join(schema_keywords.TYPES)}", path)
    return value


def _required(value: Any, path: str) -> Any:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise invalid(f"{path} must be a list of property names", path)
    return [_text(name, path) for name in value]


def _pattern(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise invalid(f"{path} must be a string", path)
    return portable_pattern(value, path)


def _format(value: Any, path: str) -> str:
    if value not in schema_keywords.FORMATS:
        supported = ", ".join(schema_keywords.FORMATS)
        raise invalid(f"{path} is {value!r}; honoured are: {supported}", path, "unsupported_schema")
    return str(value)


def _text(value: str, path: str) -> str:
    """Refuse control characters that JSON has no short escape for: `\\u` would give keys two spellings."""
    if _CONTROL.search(value):
        detail = f"{path} holds a control character, which cannot be honoured"
        raise invalid(detail, path, "unsupported_schema")
    return value


_SIMPLE: Mapping[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(schema_keywords.COUNTS, _count),
    **dict.fromkeys(schema_keywords.NUMBERS, _number),
    "multipleOf": _multiple,
    "type": _type,
    "required": _required,
    "pattern": _pattern,
    "format": _format,
}


def _all_names(schema: Any) -> set[str]:
    """Return every keyword and property name in a schema, at any depth."""
    if isinstance(schema, Mapping):
        return set(schema).union(*map(_all_names, schema.values()))
    return set().union(*map(_all_names, schema)) if isinstance(schema, list) else set()


def _normalize(checked: dict[str, Any], path: str) -> None:
    """Replace what llguidance enforces too loosely, and refuse what it cannot enforce at all."""
    exact = schema_keywords.FORMAT_PATTERNS.get(checked.get("format", ""))
    if exact is not None:
        del checked["format"]
        checked["allOf"] = [*checked.get("allOf", ()), {"pattern": exact}]
    longest = schema_keywords.FORMAT_MAX_LENGTHS.get(checked.get("format", ""))
    if longest is not None:
        checked["maxLength"] = min(longest, checked.get("maxLength", longest))
    types = checked.get("type", ())
    if "integer" in ([types] if isinstance(types, str) else types) and "number" not in types:
        _bound_integers(checked)
    # Keys that a schema does not name may repeat, and then count once.
    highest_minimum = len(set(checked.get("required", ()))) + 1
    if checked.get("minProperties", 0) > highest_minimum:
        raise invalid(
            f"{path}.minProperties is {checked['minProperties']}; more than the required properties and "
            f"one cannot be honoured",
            f"{path}.minProperties",
            "unsupported_schema",
        )


def _bound_integers(checked: dict[str, Any]) -> None:
    if not {"minimum", "exclusiveMinimum"} & checked.keys():
        checked["minimum"] = -MAX_INTEGER
    if not {"maximum", "exclusiveMaximum"} & checked.keys():
        checked["maximum"] = MAX_INTEGER
