"""Tool calls in output that is cut off before they end."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall, Release
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.messages.messages import Tool, ToolCall
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.model_outputs import (
    ExtractedCalls,
    ParsedAnswer,
    collect_answer,
    extract_calls,
)
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract

ARGUMENTS = '{"city": "Paris", "days": 2}'


def answer_of(
    tool_format: str, pieces: Iterable[str], *, ended_by_model: bool = False, release: Release = "validated"
) -> ParsedAnswer:
    prepared = PreparedPrompt((1,), frozenset(), 100, tools=TOOLS)
    parsers = make_tool_parser(tool_format), make_reasoning_parser("null")
    stream = StreamProcessor(*parsers, prepared, lambda: "id", release=release)
    deltas = [delta for piece in pieces for delta in stream.feed(piece)]
    return collect_answer([*deltas, *stream.finish(ended_by_model=ended_by_model)])


def calls_of(tool_format: str, text: str, *, ended_by_model: bool) -> tuple[ToolCall, ...]:
    return answer_of(tool_format, [text], ended_by_model=ended_by_model).tool_calls


@pytest.mark.parametrize("tool_format", WRITTEN)
def test_a_call_that_was_cut_is_made_whole_or_not_at_all(tool_format: str) -> None:
    text = WRITTEN[tool_format]
    for end in range(len(text)):
        for call in calls_of(tool_format, text[:end], ended_by_model=False):
            assert call.arguments == ARGUMENTS, text[:end]


@pytest.mark.parametrize("tool_format", ["glm4_native", "qwen3_coder", "seed_oss"])
def test_a_call_that_the_model_ended_needs_no_more_than_its_required_arguments(tool_format: str) -> None:
    text = WRITTEN[tool_format]
    first = text[: text.index("days")]
    for tag in ("<arg_key>", "<parameter="):
        first = first.removesuffix(tag)
    (call,) = calls_of(tool_format, first, ended_by_model=True)
    assert call.arguments == '{"city": "Paris"}'
    assert calls_of(tool_format, first, ended_by_model=False) == ()
    assert calls_of(tool_format, text[: text.index("<", text.index("get"))], ended_by_model=True) == ()


def test_a_call_that_was_cut_before_its_arguments_is_none_though_its_tool_requires_none() -> None:
    header = WRITTEN["harmony"].partition("{")[0].replace("get_weather", "clock.now")
    (call,) = calls_of("harmony", header, ended_by_model=True)
    assert call.arguments == "{}"
    assert calls_of("harmony", header, ended_by_model=False) == ()


@pytest.mark.parametrize(("tool_format", "shown"), [("glm4_native", "</"), ("qwen3_coder", "</f")])
def test_the_beginning_of_an_end_shows_that_no_argument_follows(tool_format: str, shown: str) -> None:
    text = WRITTEN[tool_format]
    end = text.rindex(shown if tool_format == "glm4_native" else "</function>") + len(shown)
    (call,) = calls_of(tool_format, text[:end], ended_by_model=False)
    assert call.arguments == ARGUMENTS


@pytest.mark.parametrize("tool_format", WRITTEN)
def test_nothing_of_a_later_call_that_a_grammar_held_is_text(tool_format: str) -> None:
    parser = make_tool_parser(tool_format)
    texts = {parser.render_all([ParsedCall("get_weather", ARGUMENTS)] * 2)}
    if tool_format in ("minimax_m1", "hermes_json", "jamba", "deepseek_v31"):
        texts.add(WRITTEN[tool_format] * 2)  # Two blocks.
    for text in texts:
        assert text is not None
        for end in range(text.index("2") + 1, len(text) + 1, 5):
            for pieces in ([text[:end]], text[:end]):
                answer = answer_of(tool_format, pieces, release="immediate")
                assert answer.tool_calls[0].arguments.startswith('{"city": "Paris"'), text[:end]
                assert not answer.text.strip(), text[:end]


@pytest.mark.parametrize("tool_format", ["minimax_m1", "hermes_json", "mistral", "qwen3_coder", "harmony"])
def test_text_before_and_behind_a_call_that_a_grammar_held_outlives_the_cut(tool_format: str) -> None:
    call = WRITTEN[tool_format]
    head = call[: call.index("get")]
    if tool_format == "harmony":
        said, head = "<|channel|>commentary<|message|>Let me see", "<|end|><|start|>assistant" + head
    else:
        said = "Let me see"
    assert answer_of(tool_format, [said], release="immediate").text == "Let me see"
    assert answer_of(tool_format, [said + head], release="immediate").text == "Let me see"
    if tool_format != "harmony":
        assert answer_of(tool_format, [call + " Well <"], release="immediate").text.strip() == "Well <"


def test_a_cut_call_that_nothing_held_is_text() -> None:
    call = WRITTEN["minimax_m1"]
    answer = answer_of("minimax_m1", [call + call[:40]])
    assert len(answer.tool_calls) == 1
    assert answer.text.strip() == call[:40].strip()


ECHO = Tool(
    "echo",
    parameters={
        "properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "on": {"type": "boolean"}}
    },
)

EMBEDDED = [
    "</invoke>",
    "</parameter> and more",
    "<parameter=b>",
    "</atem:function_calls> closes it",
    "</minimax:tool_call>",
    "</function>",
    "<tool_call|>",
    "<end_function_call>",
    "<|tool_calls_section_end|>",
    "</longcat_tool_call>",
    "<|tool_call_end|>",
    "<|close|>tools<|sep|>",
    "<|close|>call<|sep|>",
    "  kept\n\tas written \n",
    "]]> twice ]]>",
    "&lt; & <b>",
]


@pytest.mark.parametrize("value", EMBEDDED)
@pytest.mark.parametrize("parser_id", [name for name in WRITTEN if name.startswith("mlx_lm.")])
def test_a_value_is_kept_whatever_it_holds(parser_id: str, value: str) -> None:
    written = make_tool_parser(parser_id).render("echo", json.dumps({"text": value, "n": 1})) or ""
    found = extract(parser_id, f"Look.\n{written}\nDone.", (ECHO,))
    assert [json.loads(call.arguments) for call in found.calls] == [{"text": value, "n": 1}]
    assert found.text == "Look.\nDone."


INSIDE = {
    "mlx_lm.minimax_m2": '<minimax:tool_call>\n<invoke name="echo">\n{}</invoke>\n</minimax:tool_call>',
    "mlx_lm.muse_spark": '<atem:function_calls>\n<atem:invoke name="echo">\n{}</atem:invoke>\n'
    "</atem:function_calls>",
    "mlx_lm.minicpm5": '<function name="echo">{}</function>',
    "mlx_lm.gemma4": "<|tool_call>call:echo{}<tool_call|>",
    "mlx_lm.function_gemma": "<start_function_call>call:echo{}<end_function_call>",
    "mlx_lm.longcat": "<longcat_tool_call>echo\n{}</longcat_tool_call>",
    "mlx_lm.pythonic": "<|tool_call_start|>{}<|tool_call_end|>",
    "mlx_lm.kimi_k3": '<|open|>tools<|sep|><|open|>call tool="echo" index="1"<|sep|>{}'
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "mlx_lm.kimi_k2": "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
    "glm4_native": "<tool_call>echo\n{}</tool_call>",
}


LOOSE = {"a": "x", "b": "y", "c": "z", "d": [1], "e": {"f": 2, "g": 3}, "h": True, "i": 0}


@pytest.mark.parametrize(
    ("parser_id", "inside"),
    [
        ("mlx_lm.minimax_m2", '<parameter name="text">a\n'),
        ("mlx_lm.minimax_m2", '<parameter name="text">a</parameter>and more'),
        ("mlx_lm.minimax_m2", '<parameter name="text">a</parameter><parameter name="text">b</parameter>'),
        ("mlx_lm.minimax_m2", "as you know"),
        ("mlx_lm.muse_spark", '<atem:parameter name="text">/tmp/x\n'),
        ("mlx_lm.muse_spark", '<parameter name="text">a</parameter>'),
        ("mlx_lm.minicpm5", '<param>a</param><param name="n">1</param>'),
        ("mlx_lm.minicpm5", '<param name="text"><![CDATA[a</param>'),
        ("mlx_lm.minicpm5", '<param name="n">1</param>words'),
        ("mlx_lm.gemma4", '{text:<|"|>a<|"|>'),
        ("mlx_lm.gemma4", '{text:<|"|>a}'),
        ("mlx_lm.gemma4", '(text="a")'),
        ("mlx_lm.gemma4", "{n:1,n:2}"),
        ("mlx_lm.gemma4", "{text:'it's'}"),
        ("mlx_lm.gemma4", "{text:'a,n:1}"),
        ("mlx_lm.gemma4", "{text=a=b}}"),
        ("mlx_lm.function_gemma", "{text:<escape>a<escape>}{n:1}"),
        ("mlx_lm.function_gemma", "{n}"),
        ("mlx_lm.longcat", "<longcat_arg_key>n</longcat_arg_key>\n"),
        ("mlx_lm.pythonic", '[echo("a", "b", "c", "d")]'),
        ("mlx_lm.pythonic", '[echo(text="a"), 7]'),
        ("mlx_lm.kimi_k3", '<|open|>argument key="n" type="number"<|sep|>1'),
        ("mlx_lm.kimi_k3", "some text"),
        ("mlx_lm.kimi_k2", "functions.echo:0"),
        (
            "glm4_native",
            "<arg_key>a</arg_key><arg_key>b</arg_key><arg_value>1</arg_value><arg_value>2</arg_value>",
        ),
        ("glm4_native", "<arg_key>text</arg_key><arg_value>1<arg_key>n</arg_key><arg_value>2</arg_value>"),
        ("glm4_native", "<arg_key>n</arg_key><arg_key>text</arg_key><arg_value>2</arg_value>"),
    ],
)
def test_a_block_of_which_something_is_left_over_is_text(parser_id: str, inside: str) -> None:
    text = f"So:\n{INSIDE[parser_id].replace('{}', inside)}\nDone."
    assert extract(parser_id, text, (ECHO,)) == ExtractedCalls((), text)


@pytest.mark.parametrize("parser_id", INSIDE)
def test_text_that_mentions_a_marker_is_kept(parser_id: str) -> None:
    ((start, _), *_) = make_tool_parser(parser_id).markers
    text = f"Calls go in {start} blocks."
    assert extract(parser_id, text, (ECHO,)) == ExtractedCalls((), text)
    call = make_tool_parser(parser_id).render("echo", '{"n": 1}')
    found = extract(parser_id, f"{text}\n{call}", (ECHO,))
    assert (len(found.calls), found.text) == (1, text)


def test_positional_arguments_are_those_of_the_schema() -> None:
    (call,) = extract("mlx_lm.pythonic", '<|tool_call_start|>[echo("a", 2)]<|tool_call_end|>', (ECHO,)).calls
    assert json.loads(call.arguments) == {"text": "a", "n": 2}


@pytest.mark.parametrize(
    ("parser_id", "inside", "arguments"),
    [
        (
            "mlx_lm.gemma4",
            '{ text: <|"|>a}, {b:<tool_call|><|"|>,\n  n : 3 }',
            {"text": "a}, {b:<tool_call|>", "n": 3},
        ),
        (
            "mlx_lm.gemma4",
            '{list:[\n {a:<|"|>x<|"|>, b:[1, -2.5e3]},\n {c:null} ],on:true}',
            {"list": [{"a": "x", "b": [1, -2.5e3]}, {"c": None}], "on": True},
        ),
        ("mlx_lm.gemma4", '{"text":"a \\"b\\"",<|"|>odd key<|"|>:{}}', {"text": 'a "b"', "odd key": {}}),
        ("mlx_lm.gemma4", "{text:light}", {"text": "light"}),
        (
            "mlx_lm.gemma4",
            "{files:['a', 'b \\'c\\'',], text:'a.pdf'}",
            {"files": ["a", "b 'c'"], "text": "a.pdf"},
        ),
        ("mlx_lm.gemma4", """{text="v",'n'=2,<|"|>b<|"|>=<|"|>w<|"|>}""", {"text": "v", "n": 2, "b": "w"}),
        ("mlx_lm.gemma4", '{a:<|"|>x<|"|> b:"y"c:\'z\'\nd:[1] e:{f:2 g:3}h:true i:0}', LOOSE),
        ("mlx_lm.gemma4", "{text:at 10:30 n:2}", {"text": "at 10:30", "n": 2}),
        (
            "mlx_lm.gemma4",
            '{list:[<|"|>x<|"|> "y" \'z\' {a:1}[2]]}',
            {"list": ["x", "y", "z", {"a": 1}, [2]]},
        ),
        ("mlx_lm.function_gemma", "{text:'a'n=2}", {"text": "a", "n": 2}),
        ("mlx_lm.function_gemma", "{a:{b:[<escape>,}<escape>]}}", {"a": {"b": [",}"]}}),
        ("mlx_lm.minicpm5", "<param name='text'>a & <i>b</i></param>", {"text": "a & <i>b</i>"}),
        (
            "mlx_lm.minicpm5",
            '<param name="text"><![CDATA[</param></function>]]></param>',
            {"text": "</param></function>"},
        ),
        ("mlx_lm.minimax_m2", '<parameter name="text">\tx \n</parameter>', {"text": "\tx \n"}),
        ("mlx_lm.minimax_m2", '<parameter name="n">007</parameter>', {"n": 7}),
        ("mlx_lm.muse_spark", '<atem:parameter name="on">FALSE</atem:parameter>', {"on": False}),
        ("mlx_lm.muse_spark", '<atem:parameter name="n">NULL</atem:parameter>', {"n": None}),
        ("mlx_lm.muse_spark", '<atem:parameter name="text">NULL</atem:parameter>', {"text": "NULL"}),
        (
            "mlx_lm.kimi_k3",
            '<|open|>json type="object"<|sep|>{"text": "<|close|>json<|sep|>"}<|close|>json<|sep|>',
            {"text": "<|close|>json<|sep|>"},
        ),
        (
            "mlx_lm.kimi_k2",
            '<|tool_call_begin|>echo <|tool_call_argument_begin|> {"n": 1} <|tool_call_end|>',
            {"n": 1},
        ),
    ],
)
def test_what_can_be_read_whole_is_read(parser_id: str, inside: str, arguments: object) -> None:
    found = extract(parser_id, INSIDE[parser_id].replace("{}", inside, 1), (ECHO,))
    assert [json.loads(call.arguments) for call in found.calls] == [arguments]


def test_nothing_in_an_unfinished_section_of_characters_is_a_call() -> None:
    text = '<function name="outer"><param name="x"><![CDATA[<function name="echo"></function>'
    assert extract("mlx_lm.minicpm5", text, (ECHO, Tool("outer"))) == ExtractedCalls((), text)


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_a_whole_call_that_lacks_a_required_argument_is_a_call(parser_id: str) -> None:
    written = make_tool_parser(parser_id).render("get_weather", '{"days": 2}') or ""
    (call,) = extract(parser_id, written).calls
    assert json.loads(call.arguments) == {"days": 2}


def test_a_history_of_several_calls_is_read_again() -> None:
    calls = [ParsedCall("get_weather", '{"city": "Paris"}'), ParsedCall("clock.now", "{}")]
    for parser_id in WRITTEN:
        parser = make_tool_parser(parser_id)
        found = extract_calls(parser, parser.render_all(calls) or "")
        assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [
            (call.name, json.loads(call.arguments)) for call in calls
        ], parser_id


def test_several_tags_of_python_are_several_calls() -> None:
    text = '<|python_tag|>get_weather(city="<|python_tag|>")<|python_tag|>clock.now()<|python_tag|>what?'
    for parser_id in ("llama_python", "llama_json"):
        found = extract(parser_id, f"Look. {text}")
        assert [call.name for call in found.calls] == ["get_weather", "clock.now"]
        assert found.text == "Look. <|python_tag|>what?"


@pytest.mark.parametrize(
    ("start", "call", "end"),
    [
        ("<tool_call>", call, "</tool_call>")
        for call in (
            '{"name": "echo", "args": {"text": "a"}}',
            '{"name": "echo", "text": "a"}',
            '{"name": "echo", "arguments": {"text": "a"}, "n": 1}',
            '{"name": "echo", "arguments": {"text": "a"}, "parameters": {"text": "b"}}',
            '{"name": "echo", "arguments": {"text": "a"}, "arguments": {"text": "b"}}',
            '{"name": "echo", "arguments": {"text": "a", "text": "b"}}',
            '{"name": "rm", "name": "echo", "arguments": {}}',
            '{"type": "function", "function": {"name": "echo", "description": "", "parameters": {}}}',
            '{"function": {"name": "echo"}, "arguments": {"text": "a"}}',
        )
    ]
    + [
        ("<|tool_call_start|>[", call, "]<|tool_call_end|>")
        for call in (
            'echo(text="a", text="b")',
            'echo("a", text="b")',
            'echo(text={"a": 1, "a": 2})',
        )
    ],
)
def test_no_call_is_made_of_a_part_of_what_was_written(start: str, call: str, end: str) -> None:
    parser_id = "hermes_json" if start == "<tool_call>" else "mlx_lm.pythonic"
    written = f"{start}{call}{end}"
    assert extract(parser_id, written, (ECHO,)) == ExtractedCalls((), written)


def test_members_that_tell_a_call_from_others_are_no_arguments() -> None:
    call = '{"type": "function", "index": 0, "id": "c1", "function": {"name": "echo", "arguments": {"n": 1}}}'
    found = extract("hermes_json", f"<tool_call>{call}</tool_call>", (ECHO,))
    assert found == ExtractedCalls((ParsedCall("echo", '{"n": 1}'),), "")


def test_an_object_that_repeats_a_key_is_passed_on_as_it_was_written() -> None:
    value = '{"a": 1, "a": 2}'
    written = make_tool_parser("glm4_native").render("echo", json.dumps({"m": value})) or ""
    found = extract("glm4_native", written, (ECHO,))
    assert [json.loads(call.arguments) for call in found.calls] == [{"m": value}]
