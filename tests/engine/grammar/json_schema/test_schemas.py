from __future__ import annotations

import contextlib
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from greenroom.engine.grammar.json_schema import keywords
from greenroom.schemas.messages.response_format import Constraint, JsonObjectFormat, JsonSchemaFormat
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import FORMAT_CHECKS, Grammars, accepted_prefix, validate
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


@pytest.mark.parametrize("name", keywords.FORMATS)
def test_a_format_is_held(grammars: Grammars, name: str) -> None:
    constraint = Constraint(JsonSchemaFormat({"type": "string", "format": name}))
    finished = 0
    for seed in range(40):
        written = grammars.walk(constraint, seed)
        if written.stopped:
            FORMAT_CHECKS[name](json.loads(written.text))
            finished += 1
    assert finished > 10


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
    assert bool(re.search(keywords.FORMAT_PATTERNS["date"], text)) is held


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
    assert finished > 10


def test_tuples_of_older_drafts_are_held(grammars: Grammars) -> None:
    from jsonschema import Draft7Validator

    schema = {"type": "array", "items": [{"type": "null"}, {"type": "boolean"}], "additionalItems": False}
    for seed in range(30):
        written = grammars.walk(Constraint(JsonSchemaFormat(schema)), seed)
        assert written.stopped
        Draft7Validator(schema).validate(json.loads(written.text))


def test_every_supported_keyword_is_tested_above() -> None:
    assert KEYWORD_CASES.keys() | {"additionalItems"} == keywords.SUPPORTED


def test_the_notes_list_exactly_what_is_supported() -> None:
    notes = (Path(__file__).parents[4] / "notes" / "structured-output.md").read_text()
    for heading, expected in (
        ("Honoured keywords", keywords.SUPPORTED),
        ("Annotations", keywords.ANNOTATIONS),
        ("Formats", set(keywords.FORMATS)),
    ):
        section = notes.split(f"### {heading}\n")[1].split("\n#")[0]
        listed = [line for line in section.splitlines() if line.startswith("- ")]
        assert {name for line in listed for name in re.findall(r"`([^`]+)`", line.split(":")[0])} == expected


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
    for seed in range(40):
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
