"""JSON Schemas for tests: random ones that only short values satisfy, and one with a long value."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from greenroom.schemas.messages.requests import Constraint, JsonSchemaFormat

_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 60},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["short", "a longer value"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
PERSON_WITH_TAGS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 8},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}
LONG_ARRAY = Constraint(JsonSchemaFormat({"type": "array", "items": _PERSON, "minItems": 1_000}))
"""A constraint whose answer takes thousands of tokens."""

# A schema with control characters is refused, unless JSON has a short escape for them.
CHARACTERS = st.one_of(st.characters(exclude_categories=["Cc", "Cs"]), st.sampled_from("\n\t\b"))
NAMES = st.one_of(st.sampled_from(["a", "b", "name", "kind", "value"]), st.text(CHARACTERS, max_size=6))
TEXTS = st.text(CHARACTERS, max_size=8)


def _ordered(low: int, high: int, names: tuple[str, str], top: int) -> dict[str, int]:
    low, high = sorted((low, high))
    return {names[0]: low, names[1]: min(high, top)} if low <= top else {names[1]: top}


def _strings() -> st.SearchStrategy[Any]:
    bounds = st.builds(
        lambda low, high: _ordered(low, high, ("minLength", "maxLength"), 12),
        st.integers(0, 6),
        st.integers(0, 12),
    )
    patterns = st.sampled_from(
        [
            r"^[a-z]{2,5}$",
            r"^\d{3}-\d{4}$",
            r"^(yes|no)?$",
            r"^[^\"\s]{1,4}$",
            r"^\w+\s?\W$",
            r"^\S\D.{0,3}$",
            "^é+x{0,2}$",
        ]
    )
    return st.one_of(
        bounds.map(lambda limits: {"type": "string", **limits}),
        patterns.map(lambda pattern: {"type": "string", "pattern": pattern, "maxLength": 20}),
        st.sampled_from(["date", "time", "ipv4", "uuid"]).map(lambda of: {"type": "string", "format": of}),
    )


def _numbers() -> st.SearchStrategy[Any]:
    whole = st.integers(-(10**6), 10**6)
    decimals = st.decimals(-1000, 1000, places=2).map(float)
    return st.one_of(
        st.tuples(whole, whole).map(
            lambda ends: {"type": "integer", "minimum": min(ends), "maximum": max(ends)}
        ),
        st.tuples(whole, st.integers(2, 40)).map(
            lambda at: {
                "type": "integer",
                "exclusiveMinimum": at[0],
                "exclusiveMaximum": at[0] + 2 * at[1],
                "multipleOf": at[1],
            }
        ),
        st.tuples(decimals, st.integers(1, 500)).map(
            lambda at: {"type": "number", "minimum": at[0], "maximum": at[0] + at[1]}
        ),
        st.tuples(decimals, st.sampled_from([0.5, 0.25, 2, 3])).map(
            lambda at: {"type": "number", "minimum": at[0], "maximum": at[0] + 9, "multipleOf": at[1]}
        ),
    )


def _values() -> st.SearchStrategy[Any]:
    numbers = st.one_of(st.integers(-(2**53), 2**53), st.decimals(-99, 99, places=3).map(float))
    plain = st.one_of(st.none(), st.booleans(), numbers, TEXTS)
    value = st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
        max_leaves=4,
    )
    return st.one_of(
        value.map(lambda fixed: {"const": fixed}),
        st.lists(value, min_size=1, max_size=4).map(lambda options: {"enum": options}),
    )


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    @st.composite
    def closed(draw: st.DrawFn) -> Any:
        properties = draw(st.dictionaries(NAMES, inner, max_size=4))
        required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
        schema = {"type": "object", "properties": properties, "required": required}
        return {**schema, "additionalProperties": False}

    @st.composite
    def open_map(draw: st.DrawFn) -> Any:
        properties = draw(st.dictionaries(NAMES, inner, max_size=2))
        least = draw(st.integers(0, len(properties) + 1))
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            # Keys need a maximum length too: with random weights, they would take hundreds of tokens.
            "patternProperties": {"^[k-n][0-9a-f]{0,3}$": draw(inner)},
            "additionalProperties": False,
            "minProperties": least,
            "maxProperties": draw(st.integers(max(least, len(properties)), len(properties) + 3)),
        }

    patterned = st.tuples(inner, inner).map(
        lambda pair: {
            "type": "object",
            "properties": {"xa": {"type": ["null", "boolean"]}},
            "patternProperties": {"^y[0-9]$": pair[0], "^z[a-c]?$": pair[1]},
            "required": ["xa"],
            "additionalProperties": False,
            "maxProperties": 3,
        }
    )
    return st.one_of(closed(), open_map(), patterned)


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    @st.composite
    def array(draw: st.DrawFn) -> Any:
        limits = _ordered(draw(st.integers(0, 3)), draw(st.integers(0, 4)), ("minItems", "maxItems"), 4)
        schema = {"type": "array", "items": draw(inner), **limits}
        if draw(st.booleans()):
            schema["prefixItems"] = draw(st.lists(inner, max_size=3))
        return schema

    return array()


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    tagged = st.tuples(inner, inner).map(
        lambda pair: {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": tag}, "value": part},
                    "required": ["kind"],
                    "additionalProperties": False,
                }
                for tag, part in zip("ab", pair, strict=True)
            ]
        }
    )
    both = st.integers(-50, 50).map(
        lambda at: {"allOf": [{"type": "integer", "minimum": at}, {"maximum": at + 20}], "title": "both"}
    )
    narrowed = st.integers(0, 5).map(
        lambda size: {"$ref": "#/$defs/word", "maxLength": size, "description": "short"}
    )
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
        tagged,
        both,
        narrowed,
    )


LEAVES = st.one_of(
    st.sampled_from([{"type": "null"}, {"type": "boolean"}, {"$ref": "#/$defs/word"}]),
    _strings(),
    _numbers(),
    _values(),
)
DEFINITIONS = {"word": {"type": "string", "maxLength": 6}}


@st.composite
def bounded_schemas(draw: st.DrawFn) -> Any:
    """Draw schemas over the listed keywords that only short values satisfy."""
    parts = st.recursive(
        LEAVES, lambda inner: st.one_of(_objects(inner), _arrays(inner), _combined(inner)), max_leaves=8
    )
    return {**draw(parts), "$defs": DEFINITIONS}
