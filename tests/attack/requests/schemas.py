"""JSON Schemas with hidden costs; each maker returns one for a size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.tests.attack.requests.json_pieces import Literal, Maker, Members, Nested, Repeated, Text

JsonSchema = Any


def _definitions(count: int, link: Any) -> JsonSchema:
    """Return a chain of definitions: `d0` refers to `d1` by `link`, and so on."""
    definitions = {f"d{i}": link(f"#/$defs/d{i + 1}") for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {"type": "string"}}}


def _wrapped(count: int, wrap: Any) -> JsonSchema:
    schema: JsonSchema = {"type": "string"}
    for _ in range(count):
        schema = wrap(schema)
    return schema


def _required_twice(schema: JsonSchema) -> JsonSchema:
    return {"type": "object", "required": ["a", "b", "c"], "additionalProperties": schema}


def _long_names(size: int) -> JsonSchema:
    return _wrapped(min(size, 50), lambda inner: {"properties": {"n" * 100 * size: inner}, "type": "object"})


def _text_of(keyword: str, value: Any) -> JsonSchema:
    return {"type": "string", keyword: value}


SCHEMAS: Mapping[str, Maker] = {
    "reference_chain": lambda n: _definitions(n, lambda next_: {"$ref": next_}),
    "property_chain": lambda n: _definitions(
        n, lambda next_: {"type": "object", "properties": {"a": {"$ref": next_}}}
    ),
    "item_chain": lambda n: _definitions(n, lambda next_: {"type": "array", "items": {"$ref": next_}}),
    "doubling_references": lambda n: _definitions(
        n, lambda next_: {"anyOf": [{"$ref": next_}, {"type": "array", "items": {"$ref": next_}}]}
    ),
    "doubling_conjunctions": lambda n: _definitions(
        n, lambda next_: {"allOf": [{"$ref": next_}, {"$ref": next_}]}
    ),
    "doubling_types": lambda n: (
        _wrapped(
            min(n, 60),
            lambda inner: {"type": ["object", "array"], "items": inner, "properties": {"a": inner}},
        )
        if n < 16
        else _definitions(
            n,
            lambda next_: {
                "type": ["object", "array"],
                "items": {"$ref": next_},
                "properties": {"a": {"$ref": next_}},
            },
        )
    ),
    "self_reference": lambda n: {"anyOf": [{"$ref": "#"}] * min(n, 500) + [{"type": "null"}]},
    "required_twice": lambda n: _wrapped(min(n, 60), _required_twice),
    "nested_objects": lambda n: _wrapped(
        min(n, 900), lambda inner: {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    ),
    "nested_negations": lambda n: _wrapped(min(n, 900), lambda inner: {"not": inner}),
    "long_names": _long_names,
    "wide_object": lambda n: {"type": "object", "properties": Members({"type": "integer"}, n)},
    "wide_choice": lambda n: {
        "anyOf": [{"type": "string", "pattern": f"^[a-z]{{0,{i % 50}}}x$"} for i in range(n)]
    },
    "one_of_objects": lambda n: {
        "oneOf": [
            {"type": "object", "properties": {"a": {"const": i}, "b": {"type": "number"}}} for i in range(n)
        ]
    },
    "all_of_patterns": lambda n: {
        "type": "string",
        "allOf": [{"pattern": f"a.{{{i % 9}}}b"} for i in range(n)],
    },
    "many_values": lambda n: {"enum": [f"value {i}" for i in range(n)]},
    "same_values": lambda n: {"enum": Repeated("x", n)},
    "long_constant": lambda n: {"const": Text("x", n)},
    "nested_constant": lambda n: {"const": Nested("[", min(n, 900))},
    "huge_minimum": lambda n: {"type": "integer", "minimum": Literal("1" + "0" * n)},
    "tiny_multiple": lambda n: {"type": "number", "multipleOf": Literal(f"1e-{n}")},
    "narrow_range": lambda n: {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": Literal("0." + "0" * min(n, 300) + "1"),
    },
    "long_string": lambda n: _text_of("minLength", n * 1000),
    "long_array": lambda n: {"type": "array", "minItems": n * 1000, "items": {"type": "integer"}},
    "tuple": lambda n: {"type": "array", "prefixItems": Repeated({"type": "integer"}, n), "minItems": n},
    "repeated_pattern": lambda n: _text_of("pattern", f"^(a{{1,{n}}}b?){{1,{n}}}$"),
    "pattern_properties": lambda n: {
        "type": "object",
        "patternProperties": {f"^[a-{chr(98 + i % 24)}]{{0,{i}}}$": {"type": "integer"} for i in range(n)},
    },
    "required_only": lambda n: {"type": "object", "required": [f"r{i}" for i in range(n)]},
    "formats": lambda n: {
        "type": "array",
        "items": {"type": "string", "format": "uri", "maxLength": n, "pattern": "a.*b"},
    },
}
