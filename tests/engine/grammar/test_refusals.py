"""test_refusals."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.schema_check import check_schema
from greenroom.schemas.messages.requests import (
    ChoiceFormat,
    Constraint,
    JsonSchemaFormat,
    LarkFormat,
    RegexFormat,
    ResponseFormat,
)
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import Grammars, accepted_prefix, validate

SCHEMA = "response_format.json_schema.schema"


def refusal(grammars: Grammars, wanted: ResponseFormat) -> tuple[str | None, str]:
    with pytest.raises(ProblemError) as refused:
        grammars.compiler.compile(Constraint(wanted))
    assert refused.value.problem.status == 400
    return refused.value.problem.param, refused.value.problem.detail


def nested(keyword: str, value: Any) -> Any:
    return {"type": "object", "properties": {"x": {"items": {"anyOf": [{"type": "null"}, {keyword: value}]}}}}


@pytest.mark.parametrize(
    ("keyword", "value", "beside"),
    [
        ("not", {"const": 1}, {}),
        *((word, {}, {"if": {}, "then": {}, "else": {}}) for word in ("if", "then", "else")),
        *((word, True, {}) for word in ("uniqueItems", "contains", "divisibleBy", "disallow", "extends")),
        *((word, 1, {"contains": {}}) for word in ("minContains", "maxContains")),
        *((word, {"minLength": 2}, {}) for word in ("propertyNames", "unevaluatedItems")),
        *((word, {"a": ["b"]}, {}) for word in ("dependentRequired", "dependentSchemas", "dependencies")),
        ("unevaluatedProperties", False, {"anyOf": [{}]}),
        *((word, "#a", {}) for word in ("$dynamicRef", "$recursiveRef")),
    ],
)
def test_a_keyword_that_cannot_be_held_is_named_with_its_path(
    grammars: Grammars, keyword: str, value: Any, beside: Any
) -> None:
    param, detail = refusal(grammars, JsonSchemaFormat({"properties": {"x": {keyword: value, **beside}}}))
    assert param == f"{SCHEMA}.properties.x.{keyword}"
    assert f"'{keyword}'" in detail


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *(("mininum", "minimum"), ("requred", "required"), ("min_length", "minLength"), ("Type", "type")),
        *(("additonalProperties", "additionalProperties"), ("ref", "$ref"), ("enums", "enum")),
        *(("uniqueitems", "uniqueItems"), ("propertie", "properties"), ("oneof", "oneOf")),
    ],
)
def test_a_misspelled_keyword_is_named_with_the_one_that_was_meant(
    grammars: Grammars, word: str, meant: str
) -> None:
    param, detail = refusal(grammars, JsonSchemaFormat(nested(word, {})))
    assert param == f"{SCHEMA}.properties.x.items.anyOf[1].{word}"
    assert f"did you mean '{meant}'?" in detail


_A, _B = ({"type": "object", "properties": {name: {}}, "required": [name]} for name in "ab")


@pytest.mark.parametrize(
    ("schema", "place", "says"),
    [
        ({"oneOf": [_A, {**_A, "properties": {}}]}, "oneOf", "branches 0 and 1 that may both match"),
        ({"oneOf": [_A, _B, {**_A, "required": ["a", "b"]}]}, "oneOf", "branches 0 and 2"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", "write `anyOf`"),
        ({"oneOf": [{"pattern": "^a"}, {"pattern": "^b"}], "type": "string"}, "oneOf", "write `anyOf`"),
        ({"patternProperties": {"a*": {}, "aaa*": {}}}, "patternProperties", "exclude one another"),
        (
            {"properties": {"a": {}}, "additionalProperties": True, "minProperties": 1},
            "minProperties",
            "only",
        ),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "", "minLength (5) is greater"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "", "satisfied by no value"),
        (
            {"type": "string", "pattern": r"^(([a-z-]{0,61}[a-z])?\.)+[a-z-]{0,61}[a-z]$", "maxLength": 253},
            "maxLength",
            "too complex",
        ),
        *(
            ({"type": "string", "pattern": wrong}, "pattern", "no valid regular expression")
            for wrong in ("(", "*", "[z-a]", "a{2,1}", r"\p{Foo}")
        ),
        ({"patternProperties": {"(": {}}}, "patternProperties", "no valid regular expression"),
    ],
)
def test_what_cannot_be_compiled_is_named_with_its_path(
    grammars: Grammars, schema: Any, place: str, says: str
) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}
    param, detail = refusal(grammars, JsonSchemaFormat(whole))
    assert param == f"{SCHEMA}.properties.x" + (place and f".{place}")
    assert says in detail
    assert "coerce" not in detail


def test_branches_that_two_choices_share_are_told_apart_once(grammars: Grammars) -> None:
    def of(name: str, value: Any, **more: Any) -> Any:
        return {"properties": {name: {"const": value}}, "required": [name], **more}

    definitions = {
        "a": of("k", "a", oneOf=[{"$ref": "#/$defs/b"}, of("v", 1)]),
        "y": {"oneOf": [{"$ref": "#/$defs/a"}, of("k", "y")]},
        "b": of("v", 2, oneOf=[of("w", 1), of("w", 2)]),
    }
    schema = {"type": "object", "properties": {"y": {"$ref": "#/$defs/y"}}, "required": ["y"]}
    schema = {**schema, "$defs": definitions}
    for seed in range(6):
        validate(schema, grammars.walk(Constraint(JsonSchemaFormat(schema)), seed).text)


def test_a_property_may_be_named_like_a_keyword(grammars: Grammars) -> None:
    schema = {"type": "object", "properties": {"not": {"type": "null"}, "uniqueItems": {"type": "null"}}}
    assert grammars.compiler.compile(Constraint(JsonSchemaFormat(schema)))


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (nested("$ref", "https://example.com/schema"), ".properties.x.items.anyOf[1].$ref"),
        (nested("$ref", "#/$defs/missing"), ".properties.x.items.anyOf[1].$ref"),
        (nested("$ref", "#name"), ".properties.x.items.anyOf[1].$ref"),
        (nested("$ref", "#/properties"), ".properties.x.items.anyOf[1].$ref"),
        (nested("format", 1), ".properties.x.items.anyOf[1].format"),
        (nested("type", "text"), ".properties.x.items.anyOf[1].type"),
        (nested("minLength", -1), ".properties.x.items.anyOf[1].minLength"),
        (nested("minItems", 10**9), ".properties.x.items.anyOf[1].minItems"),
        (nested("minimum", "1"), ".properties.x.items.anyOf[1].minimum"),
        (nested("multipleOf", 0), ".properties.x.items.anyOf[1].multipleOf"),
        (nested("minimum", 2**53 + 1), ".properties.x.items.anyOf[1].minimum"),
        (nested("const", {"a": [2**60]}), ".properties.x.items.anyOf[1].const.a[0]"),
        (nested("enum", []), ".properties.x.items.anyOf[1].enum"),
        (nested("enum", ["\x00"]), ".properties.x.items.anyOf[1].enum[0]"),
        (nested("pattern", "(?=a)b"), ".properties.x.items.anyOf[1].pattern"),
        (nested("pattern", r"\bword\b"), ".properties.x.items.anyOf[1].pattern"),
        (nested("pattern", r"(a)\1"), ".properties.x.items.anyOf[1].pattern"),
        (nested("required", "a"), ".properties.x.items.anyOf[1].required"),
        (nested("properties", []), ".properties.x.items.anyOf[1].properties"),
        (nested("minProperties", 2), ".properties.x.items.anyOf[1].minProperties"),
        (nested("anyOf", {}), ".properties.x.items.anyOf[1].anyOf"),
        ({"properties": {"x": 3}}, ".properties.x"),
        ("{}", ""),
        ({"enum": list(range(20_001))}, ""),
        ({"properties": {str(index): {} for index in range(1_001)}}, ".properties"),
        ({"prefixItems": [{}] * 10_001}, ""),
    ],
)
def test_what_is_not_supported_is_refused_with_its_path(grammars: Grammars, schema: Any, path: str) -> None:
    assert refusal(grammars, JsonSchemaFormat(schema))[0] == SCHEMA + path


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "string", "minLength": 5, "maxLength": 2},
        {"type": "string", "pattern": "^a$", "minLength": 2},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
        {"type": "string", "pattern": "(unclosed"},
        {"type": "string", "pattern": "[z-a]"},
        {"type": "string", "pattern": "*"},
    ],
)
def test_what_nothing_satisfies_is_refused(grammars: Grammars, schema: Any) -> None:
    _, detail = refusal(grammars, JsonSchemaFormat(schema))
    assert "\n<" not in detail


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"n": {"$ref": "#"}}, "required": ["n"], "type": "object"},
        {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
    ],
)
def test_what_only_endless_values_satisfy_goes_on_until_it_is_cut(grammars: Grammars, schema: Any) -> None:
    written = grammars.walk(Constraint(JsonSchemaFormat(schema)), limit=2_000)
    assert not written.stopped
    assert len(written.tokens) == 2_000


def test_a_value_that_nothing_satisfies_ends_the_answer_where_it_is_reached(grammars: Grammars) -> None:
    loop = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}}
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/a"}}, "required": ["n"], **loop}
    with pytest.raises(ProblemError) as ended:
        grammars.walk(Constraint(JsonSchemaFormat(schema)))
    assert ended.value.problem.code == "grammar_too_complex"
    assert "nothing satisfies it" in ended.value.problem.detail


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        (RegexFormat("(a"), "response_format.pattern"),
        (RegexFormat(r"(?<=a)b"), "response_format.pattern"),
        (RegexFormat("a" * 5_000), "response_format.pattern"),
        (ChoiceFormat(()), "response_format.choices"),
        (ChoiceFormat(("a", "")), "response_format.choices"),
        (LarkFormat("start: missing"), "response_format.grammar"),
        (LarkFormat("nothing here"), "response_format.grammar"),
        (LarkFormat("start: " + "a" * 300_000), "response_format.grammar"),
    ],
)
def test_broken_grammars_are_refused(grammars: Grammars, wanted: ResponseFormat, param: str) -> None:
    assert refusal(grammars, wanted)[0] == param


def _chain(length: int) -> Any:
    """Return definitions that each double the previous one: 2^length leaves if expanded."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for index in range(1, length):
        ref = {"$ref": f"#/$defs/d{index - 1}"}
        definitions[f"d{index}"] = {"allOf": [ref, {"anyOf": [ref, {"properties": {"a": ref, "b": ref}}]}]}
    return {"$ref": f"#/$defs/d{length - 1}", "$defs": definitions}


def _deep(levels: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE: tuple[ResponseFormat, ...] = (
    JsonSchemaFormat(_chain(60)),
    JsonSchemaFormat(_deep(500)),
    JsonSchemaFormat({"allOf": [{"anyOf": [{"minimum": i * j} for i in range(30)]} for j in range(30)]}),
    JsonSchemaFormat({"type": "string", "pattern": "^(([a-z]{1,99}){1,99}){1,99}x$", "minLength": 90_000}),
    JsonSchemaFormat({"type": "string", "pattern": "^.*a.{300}b.*c.{300}$"}),
    JsonSchemaFormat({"type": "string", "pattern": "(a|aa|aaa)*" * 300}),
    JsonSchemaFormat({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1_000)}}),
    JsonSchemaFormat({"enum": [f"value {i}" for i in range(20_000)]}),
    RegexFormat("((a{1,999}){1,999}){1,999}"),
    LarkFormat("start: a*\na: b*\nb: a* | c*\nc: b | /x?/"),
    LarkFormat('start: start start | start start start | "a" | ""'),
)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_constraint_neither_hangs_nor_crashes(grammars: Grammars, number: int) -> None:
    began = time.process_time()
    try:
        grammars.walk(Constraint(HOSTILE[number]), limit=60)
    except ProblemError as error:
        assert error.problem.status == 400  # noqa: PT017 - either outcome will do
    assert time.process_time() - began < 60


def _objects(levels: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def _wide(count: int) -> Any:
    return {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}


def _listed(count: int) -> Any:
    return {"enum": [f"value {i}" for i in range(count)]}


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        (_objects, limits.MAX_DEPTH),
        (_deep, limits.MAX_DEPTH),
        (_wide, limits.MAX_PROPERTIES),
        (_listed, limits.MAX_VALUES),
    ],
)
def test_limits_hold_exactly(grammars: Grammars, schema: Callable[[int], Any], most: int) -> None:
    assert grammars.compiler.compile(Constraint(JsonSchemaFormat(schema(most))))
    assert f"{most:,}" in refusal(grammars, JsonSchemaFormat(schema(most + 1)))[1]


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "#"}, ".$ref"),
        ({"type": "object", "allOf": [{"$ref": "#"}]}, ".allOf[0].$ref"),
        ({"properties": {"x": {"anyOf": [{"$ref": "#/properties/x"}]}}}, ".properties.x.anyOf[0].$ref"),
        (
            {
                "properties": {"x": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            },
            ".properties.x.$ref",
        ),
    ],
)
def test_a_reference_that_only_leads_back_is_named_with_its_place(
    grammars: Grammars, schema: Any, place: str
) -> None:
    param, detail = refusal(grammars, JsonSchemaFormat(schema))
    assert param == SCHEMA + place
    assert "only leads back here" in detail


def test_a_reference_that_leads_back_through_a_value_is_no_circle(grammars: Grammars) -> None:
    tree = {"type": "object", "properties": {"child": {"anyOf": [{"$ref": "#"}]}}}
    assert grammars.compiler.compile(Constraint(JsonSchemaFormat(tree))) is not None


def test_a_root_id_is_harmless_and_an_inner_one_that_moves_references_is_refused() -> None:
    inner = {"$defs": {"n": {"type": "null"}}, "$ref": "#/$defs/n"}
    assert check_schema({"$id": "https://example.com/a", **inner}, "s") == inner
    with pytest.raises(ProblemError) as refused:
        check_schema({"properties": {"x": {"$id": "b", "items": {"$ref": "#"}}}}, "s")
    assert refused.value.problem.param == "s.properties.x.$id"


@pytest.mark.parametrize("text", ["a1", "", "ab\nab"])
def test_a_regex_holds_the_whole_answer(grammars: Grammars, text: str) -> None:
    matcher = grammars.matcher(Constraint(RegexFormat(r"^(a\d|b+c)?$")))
    tokens = list(grammars.tokenizer.encode(text))
    whole = accepted_prefix(matcher, tokens) == len(tokens)
    for token in tokens if whole else ():
        matcher.accept_token(token)
    assert (whole and matcher.is_accepting) is (re.fullmatch(r"(a\d|b+c)?", text) is not None)


def test_choices_are_written_exactly(grammars: Grammars) -> None:
    choices = ("yes", "no", 'so-"so"\n', "<think>", "ja<|im_end|>")
    found = {grammars.walk(Constraint(ChoiceFormat(choices)), seed).text for seed in range(60)}
    assert found == set(choices)


def test_a_lark_grammar_is_held(grammars: Grammars) -> None:
    grammar = 'start: expr\nexpr: NUMBER | "(" expr "+" expr ")"\nNUMBER: /[0-9]{1,3}/'
    for seed in range(20):
        written = grammars.walk(Constraint(LarkFormat(grammar)), seed)
        assert written.stopped
        assert re.fullmatch(r"[0-9+()]+", written.text)
        assert written.text.count("(") == written.text.count(")") == written.text.count("+")


@pytest.mark.parametrize(
    ("around", "depth"),
    [("items", 70), ("items", 300), ("items", 3_000), ("const", 2_000), ("const", 100_000)],
)
def test_what_is_nested_too_deep_is_refused_however_deep(grammars: Grammars, around: str, depth: int) -> None:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    param, _ = refusal(grammars, JsonSchemaFormat({around: schema}))
    assert param is not None
    assert param.startswith(SCHEMA)


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_how_deep_an_annotation_is_does_not_matter(grammars: Grammars, depth: int) -> None:
    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    assert grammars.compiler.compile(Constraint(JsonSchemaFormat({"type": "null", "default": nested})))
