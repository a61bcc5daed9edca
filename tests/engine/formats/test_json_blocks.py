"""JSON tool calls behind a marker, and formats without markers."""

from __future__ import annotations

import json

import pytest

from greenroom.engine.formats.functionary import FunctionaryV32Parser
from greenroom.engine.formats.json_blocks import JSON_BLOCKS
from greenroom.engine.formats.registry import make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls, parse_case
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract

OSLO = ParsedCall("get_weather", '{"city": "Oslo"}')
NOW = ParsedCall("clock.now", "{}")


@pytest.mark.parametrize("known", JSON_BLOCKS, ids=lambda known: known.parser_id)
def test_the_calls_of_one_turn_are_read_as_they_are_written(known: object) -> None:
    parser_id = known.parser_id  # type: ignore[attr-defined]
    parser = make_tool_parser(parser_id)
    written = parser.render_all([OSLO, NOW])
    assert written is not None
    assert extract(parser_id, f"So.\n{written}") == ExtractedCalls((OSLO, NOW), "So.")
    blocks = 2 if known.shape == "object" else 1  # type: ignore[attr-defined]
    assert written.count(parser.markers[0][0]) == blocks


@pytest.mark.parametrize(
    ("parser_id", "text"),
    [
        ("phi4mini", "Use functools.lru_cache, or functools[0]."),
        ("granite_20b", "The tag <function_call> goes before a call."),
        ("gigachat3", "It has <|function_call|> tokens."),
        ("nemotron_v2", "<TOOLCALL>none</TOOLCALL>"),
        ("apertus", '<|tools_prefix|>[{"get_weather": {"city": "Oslo"}, "clock.now": {}}]<|tools_suffix|>'),
        ("apertus", '<|tools_prefix|>[{"get_weather": 7}]<|tools_suffix|>'),
        ("xlam", 'For example [{"name": "get_weather", "arguments": {}}]'),
        ("xlam", "```json\n[1, 2]\n```"),
    ],
)
def test_what_only_looks_like_a_call_is_text(parser_id: str, text: str) -> None:
    assert extract(parser_id, text) == ExtractedCalls((), text)


def test_text_behind_a_json_value_is_text() -> None:
    call = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    assert extract("phi4mini", f"functools[{call}]\nWell?") == ExtractedCalls((OSLO,), "Well?")
    assert extract("phi4mini", f"<|tool_call|>[{call}]<|/tool_call|>Well?") == ExtractedCalls(
        (OSLO,), "Well?"
    )
    assert extract("gigachat3", f"<|function_call|>{call}</s>") == ExtractedCalls((OSLO,), "")
    assert extract("xlam", f"```json\n[{call}]\n``` Well?") == ExtractedCalls((OSLO,), "Well?")


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        ("all\nHello >>> there", 0, "Hello >>> there"),
        ('get_weather\n{"city": "Oslo"}', 1, ""),
        ('all\nLet me see.\n>>>get_weather\n{"city": "Oslo"}>>>clock.now\n{}', 2, "Let me see."),
        ('get_weather\n{"city": "Oslo"}>>>all\nDone.', 1, "Done."),
        ('nobody\n{"city": "Oslo"}', 0, 'nobody\n{"city": "Oslo"}'),
        ("Hello.", 0, "Hello."),
        ("get_weather", 0, "get_weather"),
        ("al", 0, "al"),
    ],
)
def test_functionary_addresses_every_part(text: str, calls: int, rest: str) -> None:
    found = extract("functionary_v32", text)
    assert (len(found.calls), found.text) == (calls, rest)


@pytest.mark.parametrize("pieces", [["all\nHi"], list("all\nHi")])
def test_functionary_addresses_its_text_without_tools_too(pieces: list[str]) -> None:
    assert parse_case("functionary_v32", "null", [], False, pieces)["content"] == "Hi"


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("", None),
        ("get_wea", None),
        ("get_weather\n", None),
        ("get_weather\n {", True),
        ("{", False),
        ("a b", False),
    ],
)
def test_a_name_on_a_line_of_its_own_may_begin_a_call(text: str, begins: bool | None) -> None:
    assert FunctionaryV32Parser().begins_call(text) is begins


def test_apertus_calls_end_a_thought() -> None:
    tools = [{"name": "get_weather", "parameters": {}}]
    text = '<|inner_prefix|>Hm.<|tools_prefix|>[{"get_weather": {"city": "Oslo"}}]<|tools_suffix|>'
    found = parse_case("apertus", "apertus", tools, False, list(text))
    assert found["reasoning"] == "Hm."
    assert [(call["name"], call["arguments"]) for call in found["calls"]] == [
        ("get_weather", json.loads(OSLO.arguments))
    ]
