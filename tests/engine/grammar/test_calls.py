"""test_calls."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from tokenizers import AddedToken, Tokenizer

from greenroom.engine.formats.registry import CALL_SYNTAXES, TOOL_PARSERS, make_tool_parser
from greenroom.engine.grammar import limits
from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.matcher_state import Phase
from greenroom.engine.parsers.parser import Release
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import (
    CallConstraint,
    Constraint,
    JsonSchemaFormat,
    ReasoningConstraint,
)
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.grammars.grammar_walks import END, Grammars, validate
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls, collect_calls, extract_calls

WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1, "maxLength": 9},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "where": {"$ref": "#/$defs/point"},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "boolean"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
    strict=True,
)
CODE = Tool(
    "find-code",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{1,3}$"}},
        "required": ["code"],
        "additionalProperties": False,
    },
    strict=True,
)
SCHEMAS: dict[str, Any] = {tool.name: tool.parameters for tool in (WEATHER, CODE)}
MARKERS = (
    *("[TOOL_CALLS]", "[ARGS]", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<|tool_call|>", "<|python_tag|>", "<function=", "</function>"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "｜DSML｜"),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
    *("<tool_calls>", "</tool_calls>", "<tool_call:opensource>", "<tool_sep:opensource>", "<｜tool_sep｜>"),
    *("<|tool_call>", "<tool_call|>", '<|"|>', "<start_function_call>", "<end_function_call>", "<escape>"),
    *("<|open|>", "<|close|>", "<|sep|>", "<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),
    *("<minimax:tool_call>", "</minimax:tool_call>", "<longcat_tool_call>", "</longcat_arg_value>"),
    *("<|action_start|>", "<|plugin|>", "<|action_end|>", "<|message_sep|>", "<|role_sep|>"),
)
_PLAIN = {"functionary_v32": "all\nYes"}
AUTO, REQUIRED, NAMED = ToolChoice("auto"), ToolChoice("required"), ToolChoice("named", "find-code")


@pytest.fixture(scope="module")
def marked(grammars: Grammars) -> Grammars:
    """Return a tokenizer in which the markers of all formats are special tokens."""
    tokenizer = Tokenizer.from_str(grammars.backend)
    tokenizer.add_special_tokens([AddedToken(marker, special=True) for marker in MARKERS])
    known = GrammarTokenizer(tokenizer, [grammars.token(END)])
    return Grammars(known, GrammarCompiler(known, CALL_SYNTAXES), tokenizer.to_str())


@pytest.fixture(params=["special", *deep_only("spelled")])
def either(request: pytest.FixtureRequest, grammars: Grammars, marked: Grammars) -> Grammars:
    """Run with markers spelled with ordinary tokens, and with markers that are tokens."""
    return grammars if request.param == "spelled" else marked


def calls_of(call_format: str, text: str) -> ExtractedCalls:
    extracted = extract_calls(make_tool_parser(call_format), text, (WEATHER, CODE))
    for call in extracted.calls:
        validate(SCHEMAS[call.name], call.arguments)
    return extracted


def constrained(call_format: str, choice: ToolChoice, parallel: bool = True) -> Constraint:
    return Constraint(calls=CallConstraint((WEATHER, CODE), choice, call_format, parallel))


def test_every_format_that_is_read_can_be_constrained() -> None:
    read = {make_tool_parser(name).parser_id for name in TOOL_PARSERS}
    assert read - CALL_SYNTAXES.keys() == {"null"}


@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_required_call_is_made_and_its_arguments_validate(either: Grammars, call_format: str) -> None:
    for seed in range(3):
        written = either.walk(constrained(call_format, REQUIRED), seed, eager={END: 0.5})
        assert written.stopped
        extracted = calls_of(call_format, written.text)
        assert extracted.calls
        assert not extracted.text.strip()


@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_named_tool_is_called_exactly_once_where_calls_are_not_parallel(
    either: Grammars, call_format: str
) -> None:
    for seed in range(2):
        written = either.walk(constrained(call_format, NAMED, parallel=False), seed)
        assert written.stopped
        assert [call.name for call in calls_of(call_format, written.text).calls] == ["find-code"]


@pytest.mark.parametrize("name", ["server:look_up", "/mcp/find.all-1"])
@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_name_that_is_written_is_read(either: Grammars, call_format: str, name: str) -> None:
    tools = (attrs.evolve(CODE, name=name),)
    constraint = Constraint(calls=CallConstraint(tools, REQUIRED, call_format, parallel=False))
    text = either.walk(constraint, seed=1).text
    parser = make_tool_parser(call_format)
    releases: tuple[Release, ...] = ("validated", "immediate")
    for release in releases:
        stream = parser.new_stream(tools, release)
        found = collect_calls([*stream.feed(text), *stream.finish()])
        assert ([call.name for call in found.calls], found.text.strip()) == ([name], "")


@pytest.mark.parametrize(
    "call_format",
    [name for name, written in CALL_SYNTAXES.items() if all(marker for marker, _ in written.triggers)],
)
def test_under_auto_text_is_free_and_a_call_is_held(either: Grammars, call_format: str) -> None:
    assert CALL_SYNTAXES[call_format].triggers
    for trigger, _ in CALL_SYNTAXES[call_format].triggers:
        matcher = either.matcher(constrained(call_format, AUTO))
        opening = either.tokenizer.encode(f"Let me see. {{}} {trigger}")
        for token in opening:
            mask = matcher.mask()
            assert mask is None or mask.allows(token)
            matcher.accept_token(token)
        assert matcher.phase is Phase.CALL
        assert not matcher.is_accepting
        written = either.walk(matcher, seed=3, eager={END: 1.0})
        assert written.stopped
        extracted = calls_of(call_format, either.text([*opening, *written.tokens]))
        assert len(extracted.calls) >= 1
        assert extracted.text.strip() == "Let me see. {}"


@pytest.mark.parametrize(
    ("call_format", "beginning"),
    [("llama_json", '{"name":'), ("xlam", '[{"name":'), ("functionary_v32", "get_weather\n")],
)
def test_a_model_without_a_marker_answers_or_calls(
    grammars: Grammars, call_format: str, beginning: str
) -> None:
    called = 0
    for seed in range(10):
        start = grammars.matcher(constrained(call_format, AUTO))
        prefix = grammars.tokenizer.encode(beginning if seed % 2 else _PLAIN.get(call_format, ""))
        for token in prefix:
            start.accept_token(token)
        written = grammars.walk(start, seed, limit=400, eager={END: 0.3})
        assert written.stopped
        extracted = calls_of(call_format, grammars.text([*prefix, *written.tokens]))
        called += bool(extracted.calls)
        assert bool(extracted.calls) == bool(seed % 2)
    assert called == 5


def test_free_text_costs_and_forbids_nothing(grammars: Grammars) -> None:
    matcher = grammars.matcher(constrained("hermes_json", AUTO))
    for token in grammars.tokenizer.encode("Some <tool words, <tool_calls> and {} then"):
        assert matcher.mask() is None
        matcher.accept_token(token)
    assert matcher.is_accepting


def test_one_call_at_most_where_calls_are_not_parallel(grammars: Grammars) -> None:
    matcher = grammars.matcher(constrained("hermes_json", AUTO, parallel=False))
    matcher.accept_token(grammars.token("<tool_call>"))
    written = grammars.walk(matcher)
    assert written.stopped
    assert matcher.is_terminated
    assert len(calls_of("hermes_json", "<tool_call>" + written.text).calls) == 1


def test_auto_without_strict_tools_is_not_constrained(grammars: Grammars) -> None:
    loose = Tool("loose", parameters=WEATHER.parameters)
    assert grammars.compiler.compile(Constraint(calls=CallConstraint((loose,), AUTO, "hermes_json"))) is None


@pytest.mark.parametrize(
    "parameters", [{}, {"type": "object", "properties": {}}, {"required": [], "title": "x"}]
)
@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_tool_without_parameters_is_called_without_arguments(
    grammars: Grammars, call_format: str, parameters: dict[str, Any]
) -> None:
    now = Tool("now", parameters=parameters)
    calls = CallConstraint((now,), REQUIRED, call_format, parallel=False)
    for seed in range(3):
        written = grammars.walk(Constraint(calls=calls), seed, eager={END: 0.5})
        (call,) = extract_calls(make_tool_parser(call_format), written.text, (now,)).calls
        assert (call.name, json.loads(call.arguments)) == ("now", {})


@pytest.mark.parametrize("reasons", [False, True])
def test_required_calls_end_after_one_that_repeats_another(grammars: Grammars, reasons: bool) -> None:
    reasoning = ReasoningConstraint("<think>", "</think>", False, None) if reasons else None
    calls = CallConstraint((WEATHER, CODE), REQUIRED, "hermes_json")
    first, second = (
        f'<tool_call>\n{{"name": "find-code", "arguments": {{"code": "{code}"}}}}\n</tool_call>'
        for code in ("AB1", "AB2")
    )
    for texts, ended in (((first, first), True), ((first, second), False), ((first, second, first), True)):
        matcher = grammars.matcher(Constraint(calls=calls, reasoning=reasoning))
        for text in texts:
            assert not matcher.is_terminated
            for token in grammars.tokenizer.encode(f"\n{text}" if text is not texts[0] else text):
                mask = matcher.mask()
                assert mask is None or mask.allows(token)
                matcher.accept_token(token)
        assert matcher.is_terminated is ended
        assert matcher.is_accepting


@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_loose_tool_keeps_all_of_its_schema_that_can_be_held(marked: Grammars, call_format: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["red", "green"]},
            "n": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "not": {"const": 1}},
            "name": {"enum": ["Ann"], "pattern": "("},
        },
        "required": ["kind", "n"],
        "dependentRequired": {"kind": ["n"]},
        "patternProperties": {"a*": {}, "aa*": {}},
    }
    loose = Tool("paint", parameters=schema, param="tools[0].parameters")
    matcher = marked.matcher(
        Constraint(calls=CallConstraint((loose,), REQUIRED, call_format, parallel=False))
    )
    for unheld in ("properties.n.not", "properties.name.pattern", "dependentRequired", "patternProperties"):
        assert f"tools[0].parameters.{unheld}" in matcher.constraint.notice
    for seed in range(3):
        written = marked.walk(matcher.clone(), seed, eager={END: 0.5})
        (call,) = extract_calls(make_tool_parser(call_format), written.text, (loose,)).calls
        arguments = json.loads(call.arguments)
        assert arguments["kind"] in ("red", "green")
        assert arguments["n"] in range(1, 10)


def test_a_loose_tool_with_a_schema_that_cannot_be_held_takes_any_object(grammars: Grammars) -> None:
    loose = Tool("loose", parameters={"type": "object", "not": {"required": ["x"]}})
    calls = CallConstraint((loose,), REQUIRED, "hermes_json", parallel=False)
    matcher = grammars.matcher(Constraint(calls=calls))
    for token in grammars.tokenizer.encode('<tool_call>\n{"name": "loose", "arguments": {"x": [1, {}]}}'):
        mask = matcher.mask()
        assert mask is not None
        assert mask.allows(token)
        matcher.accept_token(token)


@pytest.mark.parametrize(
    ("calls", "param"),
    [
        (CallConstraint((WEATHER,), ToolChoice("named", "nobody"), "hermes_json"), "tool_choice"),
        (CallConstraint((WEATHER,), REQUIRED, "null"), "tool_choice"),
        (
            CallConstraint(
                (WEATHER, Tool("odd", parameters={"properties": {"x": {"uniqueItems": True}}}, strict=True)),
                AUTO,
                "hermes_json",
            ),
            "tools[1].function.parameters.properties.x.uniqueItems",
        ),
        (
            CallConstraint((Tool("odd", parameters={"type": "array"}, strict=True),), AUTO, "hermes_json"),
            "tools[0].function.parameters",
        ),
        (
            CallConstraint(
                (
                    Tool(
                        "odd",
                        parameters={"properties": {"x": {"enum": [""]}}},
                        strict=True,
                    ),
                ),
                AUTO,
                "glm4_native",
            ),
            "tools[0].function.parameters",
        ),
        (CallConstraint((Tool("a b<", strict=True),), AUTO, "llama_xml"), "tools[0].function.parameters"),
    ],
)
def test_calls_that_cannot_be_held_are_refused(grammars: Grammars, calls: CallConstraint, param: str) -> None:
    with pytest.raises(ProblemError) as refused:
        grammars.compiler.compile(Constraint(calls=calls))
    assert refused.value.problem.status == 400
    assert refused.value.problem.param == param


def test_with_a_response_format_the_answer_is_either(grammars: Grammars) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    wanted = JsonSchemaFormat({**schema, "additionalProperties": False})
    constraint = Constraint(wanted, CallConstraint((WEATHER, CODE), AUTO, "hermes_json"))
    kinds = set()
    for seed in range(20):
        written = grammars.walk(constraint, seed, eager={END: 0.9, "<tool_call>": 0.2})
        assert written.stopped
        extracted = calls_of("hermes_json", written.text)
        if not extracted.calls:
            validate(schema, written.text)
        kinds.add(bool(extracted.calls))
    assert kinds == {True, False}


@pytest.mark.parametrize("choice", [REQUIRED, AUTO])
def test_a_marker_inside_a_thought_begins_no_call(grammars: Grammars, choice: ToolChoice) -> None:
    reasoning = ReasoningConstraint("<think>", "</think>", opened=True)
    calls = CallConstraint((WEATHER,), choice, "hermes_json")
    matcher = grammars.matcher(Constraint(calls=calls, reasoning=reasoning))
    for token in grammars.tokenizer.encode("Shall I <tool_call> it? </think>"):
        mask = matcher.mask()
        assert mask is None or mask.allows(token)
        matcher.accept_token(token)
    assert matcher.phase is (Phase.ANSWER if choice is REQUIRED else Phase.FREE)
    for token in grammars.tokenizer.encode("\n\n<tool_call>"):
        matcher.accept_token(token)
    written = grammars.walk(matcher, eager={END: 1.0})
    assert calls_of("hermes_json", "<tool_call>" + written.text).calls


def test_a_thought_may_come_first_under_auto(grammars: Grammars) -> None:
    calls = CallConstraint((WEATHER,), AUTO, "hermes_json")
    reasoning = ReasoningConstraint("<think>", "</think>")
    matcher = grammars.matcher(Constraint(calls=calls, reasoning=reasoning))
    for text, phase in (
        ("\n<think>", Phase.REASONING),
        ("hm <tool_call>", Phase.REASONING),
        ("</think>", Phase.FREE),
        ("So: <think>", Phase.FREE),
        ("<tool_call>", Phase.CALL),
    ):
        for token in grammars.tokenizer.encode(text):
            matcher.accept_token(token)
        assert matcher.phase is phase, text


@pytest.mark.parametrize("call_format", ["qwen3_coder", "glm4_native", "hermes_json"])
def test_a_value_of_another_type_is_left_out_and_an_escaped_backslash_may_be_last(
    grammars: Grammars, call_format: str
) -> None:
    unit = {"type": "string", "enum": ["C", "F", None, 3]}
    properties = {"unit": unit, "folder": {"type": "string", "pattern": r"^[A-Z]:\\\\$"}}
    schema = {"type": "object", "properties": properties, "required": ["unit", "folder"]}
    calls = CallConstraint((Tool("look", parameters=schema, strict=True),), REQUIRED, call_format, False)
    found = extract_calls(make_tool_parser(call_format), grammars.walk(Constraint(calls=calls), 3).text)
    [call] = found.calls
    validate(schema, call.arguments)


@pytest.mark.parametrize(
    "call_format", ["qwen3_coder", "glm4_native", "mlx_lm.gemma4", "olmo3", "hermes_json"]
)
def test_a_reference_inside_an_argument_leads_to_the_tools_own_schema(
    grammars: Grammars, call_format: str
) -> None:
    """As those that zod-to-json-schema writes for a schema that is used again."""
    unit = {"type": "string", "enum": ["C", "F"]}
    pair = {"type": "array", "items": {"$ref": "#/properties/unit"}, "minItems": 1, "maxItems": 2}
    inner = {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}
    schema = {
        "type": "object",
        "properties": {"unit": unit, "pair": pair, "inner": inner, "again": {"$ref": "#"}},
        "required": ["unit", "pair"],
        "additionalProperties": False,
    }
    tool = Tool("look", parameters=schema, strict=True)
    matcher = grammars.matcher(Constraint(calls=CallConstraint((tool,), REQUIRED, call_format, False)))
    for seed in range(5):
        written = grammars.walk(matcher.clone(), seed, eager={END: 0.7})
        [call] = extract_calls(make_tool_parser(call_format), written.text, (tool,)).calls
        validate(schema, call.arguments)


@pytest.mark.parametrize("strict", [True, False])
def test_arguments_that_repeat_large_definitions_are_refused_or_free(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    monkeypatch.setattr(limits, "MAX_GRAMMAR_TEXT", 50_000)
    names = {"enum": [f"name {number}" for number in range(500)]}
    properties = {f"p{number}": {"type": "array", "items": {"$ref": "#/$defs/n"}} for number in range(9)}
    schema = {"type": "object", "properties": properties, "$defs": {"n": names}}
    constraint = Constraint(
        calls=CallConstraint((Tool("look", parameters=schema, strict=strict),), REQUIRED, "qwen3_coder")
    )
    if not strict:
        assert grammars.walk(constraint, 1, limit=20).text.lstrip().startswith("<")
        return
    with pytest.raises(ProblemError) as refused:
        grammars.matcher(constraint)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "tools")


def test_arguments_keep_the_order_of_the_schema(grammars: Grammars) -> None:
    written = grammars.walk(constrained("hermes_json", REQUIRED, parallel=False), seed=5)
    (call,) = calls_of("hermes_json", written.text).calls
    expected = [name for name in SCHEMAS[call.name]["properties"] if name in json.loads(call.arguments)]
    assert list(json.loads(call.arguments)) == expected


@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_reference_may_lead_to_one_of_several_alternatives(grammars: Grammars, call_format: str) -> None:
    size = {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "integer"}]}
    label, count = ({"$ref": f"#/properties/size/anyOf/{index}"} for index in (0, 1))
    properties = {"size": size, "label": label, "count": count}
    schema = {"type": "object", "properties": properties, "required": ["label", "count"]}
    tool = Tool("find", "", schema, strict=True)
    constraint = Constraint(calls=CallConstraint((tool,), REQUIRED, call_format, False))
    written = grammars.walk(constraint, 1, eager={END: 0.7})
    (call,) = extract_calls(make_tool_parser(call_format), written.text, (tool,)).calls
    validate(schema, call.arguments)
