"""test_schemas."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from greenroom.engine.grammar import schema_keywords
from greenroom.engine.grammar.matcher import Matcher
from greenroom.schemas.messages.requests import Constraint, JsonObjectFormat, JsonSchemaFormat
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import (
    FORMAT_CHECKS,
    Grammars,
    accepted_prefix,
    validate,
)
from greenroom.tests.support.grammars.json_schemas import bounded_schemas


def satisfiable(grammars: Grammars, schema: Any) -> bool:
    """Return whether the schema compiles; random ones may contradict themselves, which is a 400."""
    with contextlib.suppress(ProblemError):
        grammars.matcher(Constraint(JsonSchemaFormat(schema)))
        return True
    return False


def check_walks(grammars: Grammars, schema: Any, seed: int) -> None:
    assume(satisfiable(grammars, schema))
    constraint = Constraint(JsonSchemaFormat(schema))
    written = grammars.walk(constraint, seed)
    assert written.stopped, "a bounded schema has to end"
    validate(schema, written.text)
    # Every prefix can be continued to a valid value: another walk can finish it.
    cut = random.Random(seed).randrange(len(written.tokens) + 1)
    matcher = grammars.matcher(constraint)
    for token in written.tokens[:cut]:
        matcher.accept_token(token)
    rest = grammars.walk(matcher, seed + 1)
    assert rest.stopped
    validate(schema, grammars.text([*written.tokens[:cut], *rest.tokens]))


@pytest.mark.deep
@given(schema=bounded_schemas(), seed=st.integers(0, 2**32))
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_a_random_model_writes_under_a_bounded_schema_ends_and_validates(
    grammars: Grammars, schema: Any, seed: int
) -> None:
    check_walks(grammars, schema, seed)


@pytest.mark.soak
@given(schema=bounded_schemas(), seed=st.integers(0, 2**32))
@settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_thousands_of_schemas_end_and_validate(grammars: Grammars, schema: Any, seed: int) -> None:
    check_walks(grammars, schema, seed)


@pytest.mark.parametrize("name", schema_keywords.FORMATS)
def test_a_format_is_held(grammars: Grammars, name: str) -> None:
    constraint = Constraint(JsonSchemaFormat({"type": "string", "format": name}))
    finished = 0
    for seed in range(20):
        written = grammars.walk(constraint, seed)
        if written.stopped:
            FORMAT_CHECKS[name](json.loads(written.text))
            finished += 1
    assert finished > 5


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("2024-02-29", True),
        ("2000-02-29", True),
        ("0004-02-29", True),
        ("2024-12-31", True),
        ("2023-02-29", False),
        ("1900-02-29", False),
        ("0000-01-01", False),
        ("2024-04-31", False),
    ],
)
def test_only_days_of_the_calendar_are_dates(text: str, held: bool) -> None:
    assert bool(re.search(schema_keywords.FORMAT_PATTERNS["date"], text)) is held


KEYWORD_CASES: dict[str, Any] = {
    "type": {"type": ["boolean", "null"]},
    "const": {"const": {"b": 1, "a": ['é\n"\\', None]}},
    "enum": {"enum": ["x", 1.5, -7, None, [1]]},
    "properties": {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False},
    "required": {"type": "object", "required": ["z"], "additionalProperties": {"type": "boolean"}},
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "null"}},
    "patternProperties": {
        "type": "object",
        "patternProperties": {"^a.$": {"type": "null"}},
        "additionalProperties": False,
    },
    "minProperties": {"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1},
    "maxProperties": {"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 2},
    "items": {"type": "array", "items": {"type": "boolean"}},
    "prefixItems": {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}},
    "minItems": {"type": "array", "items": {"type": "null"}, "minItems": 3},
    "maxItems": {"type": "array", "items": {"type": "null"}, "maxItems": 2},
    "minLength": {"type": "string", "minLength": 5},
    "maxLength": {"type": "string", "maxLength": 3},
    "pattern": {"type": "string", "pattern": r"^(\d|[a-f])+\.$"},
    "format": {"type": "string", "format": "date"},
    "minimum": {"type": "number", "minimum": -2.5},
    "maximum": {"type": "integer", "maximum": 12},
    "exclusiveMinimum": {"type": "integer", "exclusiveMinimum": 9},
    "exclusiveMaximum": {"type": "number", "exclusiveMaximum": 0.5, "minimum": 0},
    "multipleOf": {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 3},
    "anyOf": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    "oneOf": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    "allOf": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]},
    "$ref": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}},
    "$defs": {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}},
    "definitions": {"$ref": "#/definitions/n", "definitions": {"n": {"type": "boolean"}}},
}


@pytest.mark.parametrize("keyword", KEYWORD_CASES)
def test_a_keyword_is_held(grammars: Grammars, keyword: str) -> None:
    schema = KEYWORD_CASES[keyword]
    finished = 0
    for seed in range(30):
        written = grammars.walk(Constraint(JsonSchemaFormat(schema)), seed, limit=1_500)
        if written.stopped:
            validate(schema, written.text)
            finished += 1
    assert finished > 5


def test_tuples_of_older_drafts_are_held(grammars: Grammars) -> None:
    from jsonschema import Draft7Validator

    schema = {"type": "array", "items": [{"type": "null"}, {"type": "boolean"}], "additionalItems": False}
    for seed in range(30):
        written = grammars.walk(Constraint(JsonSchemaFormat(schema)), seed)
        assert written.stopped
        Draft7Validator(schema).validate(json.loads(written.text))


def test_every_supported_keyword_is_tested_above() -> None:
    assert KEYWORD_CASES.keys() | {"additionalItems"} == schema_keywords.SUPPORTED


def test_the_notes_list_exactly_what_is_supported() -> None:
    notes = (Path(__file__).parents[3] / "notes" / "structured-output.md").read_text()
    for heading, expected in (
        ("Honoured keywords", schema_keywords.SUPPORTED),
        ("Formats", set(schema_keywords.FORMATS)),
    ):
        section = notes.split(f"### {heading}\n")[1].split("\n#")[0]
        listed = [line for line in section.splitlines() if line.startswith("- ")]
        assert {name for line in listed for name in re.findall(r"`([^`]+)`", line.split(":")[0])} == expected


DIGIT = {"enum": [1, 2]}
AB = {"properties": {"a": DIGIT, "b": DIGIT}}
CAT, DOG = (
    {"type": "object", "properties": {"kind": {"const": kind}, kind: DIGIT}, "required": ["kind"]}
    for kind in ("cat", "dog")
)
SENT: dict[str, tuple[Any, list[str], list[str]]] = {
    "named keys only": ({"type": "object", **AB}, ["{}", '{"a":1}', '{"b":1}'], ['{"c":1}']),
    "others allowed": ({"type": "object", **AB, "additionalProperties": True}, ['{"c":1}'], []),
    "others of a schema": (
        {"type": "object", **AB, "additionalProperties": {"type": "null"}},
        ['{"c":null}'],
        ['{"c":1}'],
    ),
    "no keys named": ({"type": "object"}, ['{"c":1}'], []),
    "a key only required": ({**AB, "type": "object", "required": ["c"]}, ['{"c":1}'], ["{}", '{"d":1}']),
    "patterns of keys": (
        {"type": "object", **AB, "patternProperties": {"^x": {"type": "null"}}},
        ['{"a":1}', '{"x1":null}'],
        ['{"c":1}', '{"x1":1}'],
    ),
    "keys named by parts": (
        {
            "type": "object",
            "allOf": [{"properties": {"a": DIGIT}}, {"$ref": "#/$defs/b"}],
            "$defs": {"b": {"properties": {"b": DIGIT}}},
        },
        ['{"a":1,"b":2}'],
        ['{"c":1}'],
    ),
    "keys named by alternatives": (
        {
            "type": "object",
            "properties": {"a": DIGIT},
            "anyOf": [{"required": ["a"]}, {"properties": {"b": DIGIT}, "required": ["b"]}],
        },
        ['{"a":1}', '{"b":1}'],
        ["{}", '{"c":1}'],
    ),
    "one key at least": ({"type": "object", **AB, "minProperties": 1}, ['{"a":1}', '{"b":1}'], ["{}"]),
    "nothing beside": ({"type": "object", **AB, "unevaluatedProperties": False}, ['{"a":1}'], ['{"c":1}']),
    "nothing beside an intersection": (
        {
            "allOf": [
                {"type": "object", "properties": {"a": DIGIT}, "required": ["a"]},
                {"$ref": "#/$defs/b"},
            ],
            "unevaluatedProperties": False,
            "$defs": {"b": {"type": "object", "allOf": [{"properties": {"b": DIGIT}}]}},
        },
        ['{"a":1}', '{"a":1,"b":2}'],
        ['{"b":2}', '{"a":1,"c":1}'],
    ),
    "nothing beside what one part evaluates": (
        {
            "allOf": [{"type": "object", **AB, "additionalProperties": {"type": "null"}}],
            "unevaluatedProperties": False,
        },
        ['{"a":1,"c":null}'],
        ['{"c":1}'],
    ),
    "nothing beside nothing": (
        {"type": "object", "$ref": "#/$defs/any", "unevaluatedProperties": False, "$defs": {"any": {}}},
        ["{}"],
        ['{"c":1}'],
    ),
    "oneOf of constants": (
        {"oneOf": [CAT, DOG]},
        ['{"kind":"cat","cat":1}', '{"kind":"dog"}'],
        ['{"kind":"cat","dog":1}'],
    ),
    "oneOf of references": (
        {
            "discriminator": {"propertyName": "kind"},
            "oneOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}],
            "$defs": {"C": CAT, "D": DOG},
        },
        ['{"kind":"cat","cat":1}', '{"kind":"dog"}'],
        ['{"kind":"cat","dog":1}', "{}"],
    ),
    "oneOf of required keys": (
        {
            "oneOf": [
                {"required": ["a"], "properties": {"a": DIGIT}},
                {"required": ["b"], "properties": {"b": DIGIT}},
            ]
        },
        ['{"a":1}', '{"b":1}'],
        ['{"a":1,"b":1}', "{}", "1"],
    ),
    "oneOf beside keys": (
        {"type": "object", **AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a":1}', '{"b":1}'],
        ['{"a":1,"b":1}', "{}"],
    ),
    "oneOf with any value beside": (
        {
            "type": "object",
            **AB,
            "oneOf": [{"$ref": "#/$defs/none"}, {"required": ["a"]}],
            "$defs": {"none": {"not": {}}},
        },
        ['{"a":1}'],
        ["{}"],
    ),
    "oneOf with a boolean": (
        {"type": "object", **AB, "oneOf": [False, {"required": ["a"]}]},
        ['{"a":1}', '{"a":1,"b":2}'],
        ["{}"],
    ),
    "oneOf beside anyOf": (
        {
            "anyOf": [{"type": "string"}, {"type": "null"}],
            "oneOf": [{"type": "null"}, {"type": "integer"}],
            "$defs": {"x": {"$ref": "#/oneOf/0"}},
        },
        ["null"],
        ["1", '"a"'],
    ),
    "a reference into oneOf": (
        {
            "type": "object",
            "properties": {
                "a": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
                "b": {"$ref": "#/properties/a/oneOf/0"},
            },
            "required": ["b"],
        },
        ['{"a":1,"b":null}'],
        ['{"b":1}'],
    ),
    "oneOf in oneOf": (
        {
            "oneOf": [{"oneOf": [CAT, DOG]}, {"type": "null"}, {"$ref": "#/$defs/n"}],
            "$defs": {"n": {"enum": [1, 2]}},
        },
        ["null", "2", '{"kind":"dog"}'],
        ["3"],
    ),
    "names of any text": ({"type": "object", "propertyNames": {"type": "string"}}, ['{"a":1}'], []),
    "names of a list": (
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "null"}},
        ['{"a":null}'],
        ['{"a":1}', '{"c":null}'],
    ),
    "names of a pattern": ({"type": "object", "propertyNames": {"pattern": "^x"}}, ['{"x1":1}'], ['{"a":1}']),
    "an unknown format beside a pattern": (
        {"type": "string", "format": "jwt", "pattern": "^e+$"},
        ['"ee"'],
        ['"a"'],
    ),
    "a format of numbers": (
        {"type": "integer", "format": "int32", "nullable": True},
        ["12"],
        ['"a"', "null"],
    ),
    "words of vendors": (
        {
            "type": "null",
            "markdownDescription": "x",
            "links": [],
            "readonly": 1,
            "_format": "y",
            "contentSchema": {},
        },
        ["null"],
        ["1"],
    ),
    "draft 4's exclusive bounds": (
        {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": False},
        ["2", "3"],
        ["1", "4"],
    ),
    "bounds of 64 bits": ({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, ["7"], ["-7"]),
    "a length without end": ({"type": "string", "maxLength": 2**31 - 1}, ['"a"'], ["1"]),
    "a key that is never written": (
        {"type": "object", "properties": {"a": {"not": {}}, "b": DIGIT}},
        ['{"b":1}'],
        ['{"a":1}'],
    ),
    "half a condition": ({"type": "null", "then": {"type": "string"}, "minContains": 2}, ["null"], ["1"]),
}


def allows(matcher: Matcher, tokens: Sequence[int]) -> bool:
    """Return whether a text is a whole answer."""
    ahead = matcher.clone()
    for token in tokens:
        mask = ahead.mask()
        if mask is not None and not mask.allows(token):
            return False
        ahead.accept_token(token)
    return ahead.is_accepting


@pytest.mark.parametrize("name", SENT)
def test_what_people_send_is_held(grammars: Grammars, name: str) -> None:
    schema, written, refused = SENT[name]
    matcher = grammars.matcher(Constraint(JsonSchemaFormat(schema)))
    for text in (*written, *refused):
        assert allows(matcher, grammars.tokenizer.encode(text)) is (text in written), text
    for seed in range(10):
        answer = grammars.walk(Constraint(JsonSchemaFormat(schema)), seed, limit=300)
        if answer.stopped and "Minimum" not in str(schema):  # The validator reads draft 2020-12 alone.
            validate(schema, answer.text)


_DATE = "^(?:\\d{4}-\\d{2}-\\d{2})$"
_ZOD_OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
ZOD: dict[str, tuple[Any, Any]] = {
    "string": ({"type": "string"}, "x"),
    "email": ({"type": "string", "format": "email", "pattern": "^[a-z]+@[a-z]+\\.[a-z]{2,}$"}, "a@b.de"),
    "url": ({"type": "string", "format": "uri"}, "http://a.b"),
    "uuid": (
        {"type": "string", "format": "uuid", "pattern": "^([0-9a-fA-F]{8}-.{27})$"},
        "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
    ),
    "base64": (
        {
            "type": "string",
            "format": "base64",
            "contentEncoding": "base64",
            "pattern": "^[A-Za-z0-9+/]*={0,2}$",
        },
        "YQ==",
    ),
    "jwt": ({"type": "string", "format": "jwt"}, "a.b.c"),
    "emoji": (
        {
            "type": "string",
            "format": "emoji",
            "pattern": "^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$",
        },
        "😀",
    ),
    "cuid": ({"type": "string", "format": "cuid", "pattern": "^[cC][^\\s-]{8,}$"}, "c12345678"),
    "nanoid": ({"type": "string", "format": "nanoid", "pattern": "^[a-zA-Z0-9_-]{21}$"}, "a" * 21),
    "cidr": (
        {
            "type": "string",
            "format": "cidrv4",
            "pattern": "^(?:[0-9]{1,3}\\.){3}[0-9]{1,3}/([0-9]|[12][0-9]|3[0-2])$",
        },
        "1.2.3.4/8",
    ),
    "e164": ({"type": "string", "format": "e164", "pattern": "^\\+(?:[0-9]){6,14}[0-9]$"}, "+4912345678"),
    "duration": ({"type": "string", "format": "duration", "pattern": "^P.+$"}, "P1D"),
    "datetime": ({"type": "string", "format": "date-time"}, "2024-01-02T03:04:05Z"),
    "date": ({"type": "string", "format": "date", "pattern": _DATE}, "2024-01-02"),
    "startsWith": ({"type": "string", "format": "starts_with", "pattern": "^ab.*"}, "abc"),
    "length": ({"type": "string", "minLength": 2, "maxLength": 4}, "abc"),
    "int": ({"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}, 7),
    "positive": ({"type": "number", "exclusiveMinimum": 0}, 1.5),
    "boolean": ({"type": "boolean"}, True),
    "never": ({**_ZOD_OBJECT, "properties": {**_ZOD_OBJECT["properties"], "n": {"not": {}}}}, {"a": "x"}),
    "literal": ({"type": "string", "const": "x"}, "x"),
    "enum": ({"type": "string", "enum": ["x", "y"]}, "y"),
    "nullable": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
    "array": ({"type": "array", "items": {"type": "string"}, "minItems": 1}, ["x"]),
    "tuple": ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}, ["x", 1]),
    "record": (
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}},
        {"k": 1},
    ),
    "object": ({**_ZOD_OBJECT, "additionalProperties": False, "default": {}}, {"a": "x"}),
    "discriminatedUnion": ({"oneOf": [CAT, DOG]}, {"kind": "dog"}),
    "json": (
        {
            "$ref": "#/$defs/j",
            "$defs": {
                "j": {
                    "anyOf": [
                        {"type": "string"},
                        {"type": "null"},
                        {"type": "array", "items": {"$ref": "#/$defs/j"}},
                        {
                            "type": "object",
                            "propertyNames": {"type": "string"},
                            "additionalProperties": {"$ref": "#/$defs/j"},
                        },
                    ]
                }
            },
        },
        {"k": ["x", None]},
    ),
}


@pytest.mark.parametrize("shape", ZOD)
def test_the_shapes_of_zod_are_held(grammars: Grammars, shape: str) -> None:
    schema, value = ZOD[shape]
    held = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    matcher = grammars.matcher(Constraint(JsonSchemaFormat(held)))
    assert allows(matcher, grammars.tokenizer.encode(json.dumps(value, ensure_ascii=False)))


def test_a_tree_may_refer_to_itself(grammars: Grammars) -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "boolean"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
    }
    for seed in range(20):
        written = grammars.walk(Constraint(JsonSchemaFormat(schema)), seed)
        assert written.stopped
        validate(schema, written.text)


def test_json_object_is_an_object(grammars: Grammars) -> None:
    objects = 0
    for seed in range(30):
        written = grammars.walk(Constraint(JsonObjectFormat()), seed, limit=300)
        if written.stopped:
            assert isinstance(json.loads(written.text), dict)
            objects += 1
    assert objects


def test_an_integer_without_bounds_stays_readable_for_every_client(grammars: Grammars) -> None:
    schema = {"type": "integer"}
    for seed in range(20):
        assert abs(int(grammars.walk(Constraint(JsonSchemaFormat(schema)), seed).text)) < 2**63


def test_a_key_is_not_written_in_a_second_way_that_dodges_its_schema(grammars: Grammars) -> None:
    schema = {"properties": {"\n": {"type": "null"}}, "additionalProperties": {"type": "boolean"}}
    matcher = grammars.matcher(Constraint(JsonSchemaFormat({"type": "object", **schema})))
    for key in ('{"\\u000a":', '{"\\u000A":', '{"\n":'):
        tokens = list(grammars.tokenizer.encode(key))
        assert accepted_prefix(matcher, tokens) < len(tokens)
    for token in grammars.tokenizer.encode('{"\\n":'):
        matcher.accept_token(token)
    assert accepted_prefix(matcher, grammars.tokenizer.encode("true")) == 0
