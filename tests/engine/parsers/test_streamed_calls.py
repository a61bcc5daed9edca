"""Incrementally parsed tool calls equal those parsed from complete blocks."""

from __future__ import annotations

import json

import pytest

from greenroom.engine.formats.registry import make_tool_parser
from greenroom.engine.parsers.parser import CallArguments, CallEnd, CallName, ParsedCall, ToolCallParser
from greenroom.tests.support.parsers.model_outputs import collect_calls, extract_calls
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN

TEXTS = ['a "b"\\\n<é', " x ", "", "</", "}]", "12", "'\\u00e9\\x41\t'"]
OTHERWISE_WRITTEN = [
    ("qwen3_coder", "<function=get_weather><parameter=city>\nRome\n</parameter></function>"),
    ("qwen3_coder", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'),
    ("qwen3_coder", '<tool_call><function=get_weather>{"city": "Rome"}</function></tool_call>'),
    ("qwen3_coder", "<function=get_weather><parameter=city>a</parameter> b</parameter></function>"),
    ("seed_oss", "<function=get_weather><parameter=city>Rome</parameter></function>"),
    ("glm4_native", '<tool_call>get_weather\n{"city": "Rome"}\n</tool_call>'),
    ("glm4_native", "<tool_call>clock.now</tool_call>"),
    (
        "hunyuan",
        "<tool_calls><tool_call>get_weather<tool_sep><arg_key>city</arg_key>"
        "<arg_value>Rome</arg_value></tool_call></tool_calls>",
    ),
    (
        "hunyuan_v3",
        "<tool_call:opensource>get_weather<tool_sep:opensource><arg_key:opensource>city"
        "</arg_key:opensource><arg_value:opensource>Rome</arg_value:opensource><end_of_tool_call:opensource>",
    ),
    (
        "mlx_lm.kimi_k3",
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>json '
        'type="object"<|sep|>{"city": "Rome"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
    ),
    (
        "mlx_lm.minicpm5",
        '<function name="get_weather"><param name="city"><![CDATA[a < b]]></param></function>',
    ),
    ("mlx_lm.minicpm5", '<function name="get_weather"><param name="city"> Rome </param></function>'),
    ("mlx_lm.gemma4", '<|tool_call>call:get_weather{city:"R\\u00f6m \\ud83d\\ude00"}<tool_call|>'),
    (
        "mlx_lm.gemma4",
        "<|tool_call>call:get_weather{city='R\\'o' days:['a' 'b',] x:2 'y'=true z=at 1:30}<tool_call|>",
    ),
    ("mlx_lm.gemma4", '<|tool_call>call:get_weather{city:<|"|>R<|"|>,days:[1,{a:null}]}<tool_call|>'),
    (
        "mlx_lm.pythonic",
        "<|tool_call_start|>[get_weather(city='R' \"o\" '', days={'a': [1, (2,)]})]<|tool_call_end|>",
    ),
    ("mlx_lm.pythonic", '<|tool_call_start|>[{"name": "clock.now", "arguments": {}}]<|tool_call_end|>'),
    ("deepseek_dsml", '<｜DSML｜tool_calls><｜DSML｜invoke name="clock.now"/></｜DSML｜tool_calls>'),
    ("mistral", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}}]'),
    ("hermes_json", '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}}</tool_call>'),
    ("nemotron_v2", '<TOOLCALL>[{"name": "clock.now"}}, {"name": "clock.now"}}]</TOOLCALL>'),
    (
        "cohere2",
        '<|START_ACTION|>[{"tool_call_id": 0, "tool_name": "get_weather", "parameters": '
        '{"city": "Rome"}}, {"tool_name": "clock.now", "parameters": {}}]<|END_ACTION|>',
    ),
]


def check_streamed(parser: ToolCallParser, text: str) -> None:
    """Check that incremental parsing finds the same calls if the text is split once or everywhere."""
    found = extract_calls(parser, text, TOOLS)
    assert found.calls, text
    for pieces in ([*text], *([text[:at], text[at:]] for at in range(0, len(text), 6))):
        stream = parser.new_stream(TOOLS, "immediate")
        events = [event for piece in pieces for event in stream.feed(piece)]
        assert collect_calls([*events, *stream.finish()]) == found, pieces


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_several_calls_with_odd_texts_come_alike(parser_id: str) -> None:
    parser = make_tool_parser(parser_id)
    for value in TEXTS:
        arguments = json.dumps({"city": value, "days": 2}, ensure_ascii=False)
        calls = [ParsedCall("get_weather", arguments), ParsedCall("clock.now", "{}")]
        text = parser.render_all(calls)
        assert text is not None
        check_streamed(parser, text)


@pytest.mark.parametrize(("parser_id", "text"), OTHERWISE_WRITTEN)
def test_what_is_written_otherwise_comes_alike(parser_id: str, text: str) -> None:
    check_streamed(make_tool_parser(parser_id), text)


def test_a_call_to_another_tool_is_text_from_the_first() -> None:
    stream = make_tool_parser("qwen3_coder").new_stream(TOOLS, "immediate")
    text = "<tool_call>\n<function=other>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    events = [event for character in text for event in stream.feed(character)]
    assert collect_calls([*events, *stream.finish()]).text == text


def test_parallel_calls_come_in_order() -> None:
    stream = make_tool_parser("deepseek_v31").new_stream(TOOLS, "immediate")
    head, tail = "<｜tool▁call▁begin｜>clock.now<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
    stream.feed("<｜tool▁calls▁begin｜>")
    first = stream.feed(head + '{"a": 1')
    assert first == [CallName("clock.now"), CallArguments('{"a": 1')]
    second = stream.feed("}" + tail + head + "{")
    assert second == [CallArguments("}"), CallEnd(), CallName("clock.now"), CallArguments("{")]
