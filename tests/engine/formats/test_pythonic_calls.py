"""Tool calls written as Python, between markers or in a bare list."""

from __future__ import annotations

import json

import pytest

from greenroom.engine.formats.registry import make_tool_parser
from greenroom.schemas.messages.messages import Tool
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'it\\'s'", "it's"),
        (r"'\d\x41\u00e9\n'", "\\dA\u00e9\n"),
        (r"r'\n'", r"\n"),
        ('"""say "no" twice"""', 'say "no" twice'),
        ("'a' \"b\"", "ab"),
        ("-1_000", -1000),
        ("0x1F", 31),
        (".5e1", 5.0),
        ("[1, (2, 3), {'k': None, 4: True},]", [1, [2, 3], {"k": None, "4": True}]),
        ("'</function_calls>'", "</function_calls>"),
        ("'two\nlines'", "two\nlines"),
    ],
)
def test_values_of_python(written: str, value: object) -> None:
    tool = Tool("f", parameters={})
    (call,) = extract("olmo3", f"<function_calls>f(from={written}, x=1)</function_calls>", (tool,)).calls
    assert json.loads(call.arguments) == {"from": value, "x": 1}


@pytest.mark.parametrize(
    "written", ["1.2.3", "0x", "f(1)", "1 + 1", "b'x'", "[1 2]", "{'a'}", "{[]: 1}", "9" * 5_000]
)
def test_what_is_no_value_of_python_is_text(written: str) -> None:
    text = f"<function_calls>f(x={written})</function_calls>"
    assert extract("olmo3", text, (Tool("f", parameters={}),)) == ExtractedCalls((), text)


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        ('[get_weather(city="Paris"), clock.now()]', 2, ""),
        ('[get_weather(city="Paris")]\nDone.', 1, "Done."),
        ('[\n  get_weather(city="a]b)",\n  days=2)\n]', 1, ""),
        ('<|python_start|>[get_weather(city="Paris")]<|python_end|>', 1, ""),
        ('Now: <|python_start|>[get_weather(city="Paris")]<|python_end|> Wait.', 1, "Now: Wait."),
        ('{"name": "get_weather", "parameters": {"city": "Paris"}}', 1, ""),
        ('See [get_weather(city="Paris")]', 0, 'See [get_weather(city="Paris")]'),
        ("[a link](https://example.com)", 0, "[a link](https://example.com)"),
        ("[f(x)] is a list", 0, "[f(x)] is a list"),
        ("[get_weather(city=", 0, "[get_weather(city="),
    ],
)
def test_calls_in_a_bare_list(text: str, calls: int, rest: str) -> None:
    found = extract("bare_pythonic", text)
    assert (len(found.calls), found.text) == (calls, rest)


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ('get_weather(city="Paris")', 1),
        ('[[get_weather(city="Paris")]]', 1),
        ('[get_weather("Paris", 2), clock.now()]', 2),
        ('[{"name": "get_weather", "arguments": {"city": "Paris"}}]', 1),
        ("[get_weather(city=Paris)]", 0),
        ("[get_weather(Paris)]", 0),
        ('[get_weather(city="Paris")', 0),
    ],
)
def test_calls_of_lfm2(body: str, calls: int) -> None:
    text = f"<|tool_call_start|>{body}<|tool_call_end|>"
    found = extract("mlx_lm.pythonic", text)
    assert (len(found.calls), found.text) == (calls, "" if calls else text)


@pytest.mark.parametrize("parser_id", ["bare_pythonic", "olmo3", "mlx_lm.pythonic"])
@pytest.mark.parametrize("name", ["3d_print", "mcp__home__lamp-on", "a/b", "a:b", "名前"])
def test_names_that_python_does_not_allow_are_called(parser_id: str, name: str) -> None:
    written = make_tool_parser(parser_id).render(name, '{"x": 1}') or ""
    found = extract(parser_id, written, (Tool(name, parameters={}),))
    assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [(name, {"x": 1})]
