from __future__ import annotations

import json

import pytest

from greenroom.engine.formats.registry import CALL_SYNTAXES, make_tool_parser
from greenroom.engine.parsers.answer_or_calls import AnswerOrCalls
from greenroom.engine.parsers.parser import ParserEvent, Release
from greenroom.schemas.messages.messages import Tool
from greenroom.tests.support.parsers.model_outputs import collect_calls, extract_calls
from greenroom.tests.support.parsers.tool_call_examples import PARIS, TOOLS, WRITTEN

CALL = "<tool_call>\n<function=look>\n<parameter=at>\nRome\n</parameter>\n</function>\n</tool_call>"
JSON = '{"quoted": "' + CALL.replace("\n", "") + '"}'


def read(text: str, piece: int) -> tuple[list[tuple[str, str]], str]:
    stream = AnswerOrCalls(make_tool_parser("qwen3_coder")).new_stream([Tool("look")])
    events: list[ParserEvent] = []
    for start in range(0, len(text), piece):
        events += stream.feed(text[start : start + piece])
    extracted = collect_calls([*events, *stream.finish()])
    return [(call.name, call.arguments) for call in extracted.calls], extracted.text


@pytest.mark.parametrize("piece", [1, 3, 1_000])
def test_a_call_counts_only_where_the_output_begins_with_one(piece: int) -> None:
    assert extract_calls(make_tool_parser("qwen3_coder"), JSON, [Tool("look")]).calls
    assert read(JSON, piece) == ([], JSON)
    assert read(f"\n {JSON}", piece) == ([], f"\n {JSON}")
    calls, _ = read(f"\n{CALL}", piece)
    assert [name for name, _ in calls] == ["look"]


@pytest.mark.parametrize("text", ["", "\n", "<tool", "<tool_cat>", "<"])
def test_what_only_begins_like_a_call_is_text(text: str) -> None:
    assert read(text, 1) == ([], text)


@pytest.mark.parametrize("release", ["validated", "immediate"])
@pytest.mark.parametrize("parser_id", CALL_SYNTAXES)
def test_a_call_that_a_grammar_demands_is_read_in_every_format(parser_id: str, release: Release) -> None:
    written = WRITTEN[parser_id]
    for pieces in ([written], list(written), list(f" {written}")):
        stream = AnswerOrCalls(make_tool_parser(parser_id)).new_stream(TOOLS, release)
        events = [event for piece in pieces for event in stream.feed(piece)]
        extracted = collect_calls([*events, *stream.finish()])
        assert [(call.name, json.loads(call.arguments)) for call in extracted.calls] == [
            ("get_weather", PARIS)
        ]
        assert not extracted.text.strip()
