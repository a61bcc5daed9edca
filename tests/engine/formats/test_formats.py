"""Every tool-call format, as its models write it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from greenroom.engine.formats.registry import FURTHER_NAMES, TOOL_PARSERS, make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.schemas.messages.messages import Tool
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls, extract_calls
from greenroom.tests.support.parsers.tool_call_examples import CLOCK, PARIS, TOOLS, WRITTEN
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract

UNQUOTED = {
    *("glm4_native", "qwen3_coder", "seed_oss", "step3", "hunyuan_v3"),
    *("mlx_lm.longcat", "mlx_lm.minicpm5", "mlx_lm.minimax_m2", "mlx_lm.muse_spark"),
}
REWRITTEN = {
    *("bare_pythonic", "olmo3", "deepseek_dsml"),
    *("mlx_lm.pythonic", "mlx_lm.gemma4", "mlx_lm.function_gemma", "mlx_lm.kimi_k3"),
}
TO_THE_END = {"granite_json"}
STRUCTURE = {"<|message_sep|>"}
"""Prefixes of call markers that also surround answers and have no meaning alone."""
NAME_FIRST = {"functionary_v32"}
"""Formats in which a line that is not a tool's name is immediately text, so it is no malformed call."""
ONLY_ALONE = {"llama_json", "bare_pythonic", "xlam", "functionary_v32"}


def test_every_parser_has_an_example() -> None:
    assert set(WRITTEN) | {"null"} | set(FURTHER_NAMES) == set(TOOL_PARSERS)


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_a_call_is_found(parser_id: str) -> None:
    (call,) = extract(parser_id, WRITTEN[parser_id]).calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", PARIS)


def state_of(value: object) -> object:
    """Return the complete state of an object as text."""
    if isinstance(value, dict):
        return [(repr(key), state_of(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [state_of(item) for item in value]
    own = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}
    members = {**own, **getattr(value, "__dict__", {})}
    if not members or isinstance(value, type) or callable(value):
        return repr(value)
    return type(value).__name__, state_of(members)


@pytest.mark.parametrize("parser_id", sorted(TOOL_PARSERS))
def test_reading_leaves_a_parser_as_it_was(parser_id: str) -> None:
    # The thread that prepares prompts and the one that parses answers share the parser.
    parser = make_tool_parser(parser_id)
    before = state_of(parser)
    for text in (*WRITTEN.values(), "no call at all"):
        extract_calls(parser, text, TOOLS)
    parser.render("get_weather", json.dumps(PARIS))
    assert state_of(parser) == before


@pytest.mark.parametrize("parser_id", sorted(set(WRITTEN) - ONLY_ALONE))
def test_text_before_a_call_stays(parser_id: str) -> None:
    found = extract(parser_id, "Let me look.\n\n" + WRITTEN[parser_id])
    assert (len(found.calls), found.text) == (1, "Let me look.")


@pytest.mark.parametrize("parser_id", sorted(set(WRITTEN) - ONLY_ALONE - TO_THE_END))
def test_parallel_calls_and_the_text_around_them(parser_id: str) -> None:
    call = WRITTEN[parser_id]
    found = extract(parser_id, f"One.\n{call}\n{call} \n Two.\n{call}")
    assert (len(found.calls), found.text) == (3, "One.\nTwo.")


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_a_call_to_a_tool_that_was_not_offered_is_text(parser_id: str) -> None:
    text = f" {WRITTEN[parser_id]}\n"
    with capture_logs() as logs:
        found = extract(parser_id, text, (CLOCK,))
    assert found == ExtractedCalls((), text)
    warnings = [log for log in logs if log["log_level"] == "warning"]
    expected = set() if parser_id in NAME_FIRST else {(parser_id, "tool not offered")}
    assert {(log["parser"], log["reason"]) for log in warnings} == expected
    assert "Paris" not in str(warnings)


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_without_tools_nothing_is_a_call(parser_id: str) -> None:
    assert extract(parser_id, WRITTEN[parser_id] + "\n", ()) == ExtractedCalls((), WRITTEN[parser_id] + "\n")


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_every_beginning_of_a_call_is_a_call_or_text_and_never_lost(parser_id: str) -> None:
    written = WRITTEN[parser_id]
    for length in range(len(written) + 1):
        found = extract_calls(make_tool_parser(parser_id), written[:length], TOOLS)
        is_structure = written[:length].strip() in STRUCTURE
        assert found.text == ("" if found.calls or is_structure else written[:length])
        for call in found.calls:
            assert json.loads(call.arguments).items() >= {"city": "Paris"}.items()
    assert found.calls, "the whole is a call"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "get_weather", "arguments": {"city" :"Paris"} }', '{"city" :"Paris"}'),
        ('{"arguments": {"city": "Paris"}, "name": "get_weather"}', '{"city": "Paris"}'),
        (r'{"name": "get_weather", "arguments": "{\"city\":\"Paris\"}"}', '{"city":"Paris"}'),
        ('{"name": "get_weather", "parameters": {"city": "Paris"}}', '{"city": "Paris"}'),
        ('{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}', None),
        ('[{"name": "get_weather", "arguments": {"city": "Paris"}}]', '{"city": "Paris"}'),
        ('{"name": "get_weather", "arguments": {"city": "Paris"}', '{"city": "Paris"}'),
        ('{"name": "get_weather", "arguments": {"city": "Paris"}}}', '{"city": "Paris"}'),
        ('{"name": "get_weather", "arguments": null}', "{}"),
        ('{"name": "get_weather"}', "{}"),
        ('{"name": "get_weather", "arguments": {"city": "Pa\nris"}}', r'{"city": "Pa\nris"}'),
        (r'{"name": "get_weather", "arguments": {"city": "\ud800"}}', r'{"city": "\ud800"}'),
        ('{"name": "get_weather", "arguments": {"city": "<think></tool_call>"}}', None),
        ('{"name": "get_weather", "arguments": {"city": "1 </tool_call> 2 <tool_call> 3"}}', None),
    ],
)
def test_shapes_of_json_calls(text: str, arguments: str | None) -> None:
    found = extract("hermes_json", f"<tool_call>{text}</tool_call>")
    if arguments is None:
        arguments = text[text.index('{"city') : text.rindex('"}') + 2]
    assert found == ExtractedCalls((ParsedCall("get_weather", arguments),), "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "get_weather",
        '{"name": "get_weather", "arguments": [1]}',
        '{"name": "get_weather", "arguments": "Paris"}',
        '{"name": "get_weather", "arguments": {"city": NaN}}',
        '{"name": "get_weather", "arguments": {"city": ' + "[" * 100_000 + "}}",
        '{"name": "get_weather", "arguments": {"days": ' + "1" * 5_000 + "}}",
        '{"function": ' * 3_000 + '{"name": "get_weather"}' + "}" * 3_000,
        '{"name": 7, "arguments": {}}',
        '{"name": "get_weather", "arguments": {"city": "Paris}}',
        '{"name": "get_weather", "arguments": {"city": "Paris"}} and more',
    ],
)
def test_what_is_no_json_call_is_text(text: str) -> None:
    parser = make_tool_parser("hermes_json")
    whole = f"See:\n<tool_call>{text}</tool_call>\nSo."
    assert extract_calls(parser, whole, TOOLS) == ExtractedCalls((), whole)


def test_a_marker_that_is_only_mentioned_does_not_hide_a_call() -> None:
    text = "Calls go into <tool_call> tags: " + WRITTEN["hermes_json"]
    found = extract("hermes_json", text)
    assert (len(found.calls), found.text) == (1, "Calls go into <tool_call> tags:")


def test_a_broken_call_does_not_hide_the_next() -> None:
    broken = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris}}</tool_call>'
    found = extract("hermes_json", f"{broken}\n{WRITTEN['hermes_json']}")
    assert (len(found.calls), found.text) == (1, broken)


def test_a_torn_call_does_not_hide_the_next() -> None:
    torn = '<tool_call>{"name": "get_weather",'
    found = extract("hermes_json", f"{torn}\n{WRITTEN['hermes_json']}")
    assert (len(found.calls), found.text) == (1, torn)


def test_many_broken_calls_cost_no_more_than_their_length() -> None:
    text = '<tool_call>{"name": "' + "</tool_call>" * 20_000
    assert extract_calls(make_tool_parser("hermes_json"), text, TOOLS) == ExtractedCalls((), text)


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, '  "quoted"\n', '  "quoted"\n'),
        ({"type": "integer"}, " 12 ", 12),
        ({"type": "integer"}, "5.0", 5),
        ({"type": ["integer", "null"]}, "-1e3", -1000),
        ({"type": "integer"}, "5.5", 5.5),
        ({"type": "integer"}, "12345678901234567890.0", 12345678901234567890.0),
        ({"type": "number"}, "5.0", 5.0),
        ({"type": ["string", "integer"]}, "5.0", "5.0"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "12", 12),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"const": 1}, "1", 1),
        ({"type": "boolean"}, "True", True),
        ({"type": "array"}, "['a', 1]", ["a", 1]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "number"}, "many", "many"),
        ({}, '{"a": [1]}', {"a": [1]}),
        ({}, "plain", "plain"),
        ({"type": "string"}, "a </tool_call> b </arg_value> c", "a </tool_call> b </arg_value> c"),
    ],
)
def test_glm_values_are_what_the_schema_says(schema: dict[str, object], written: str, value: object) -> None:
    tool = Tool("f", parameters={"properties": {"x": schema}})
    text = f"<tool_call>f<arg_key>x</arg_key><arg_value>{written}</arg_value></tool_call>"
    (call,) = extract("glm4_native", text, (tool,)).calls
    read = json.loads(call.arguments)
    assert (read, type(read["x"])) == ({"x": value}, type(value))


def test_a_reference_into_a_list_says_what_a_value_is() -> None:
    alternatives = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    parameters = {"properties": {"a": alternatives, "x": {"$ref": "#/properties/a/anyOf/0"}}}
    text = "<tool_call>f<arg_key>x</arg_key><arg_value>12</arg_value></tool_call>"
    (call,) = extract("glm4_native", text, (Tool("f", parameters=parameters),)).calls
    assert json.loads(call.arguments) == {"x": "12"}


def test_a_glm_call_cut_short_before_a_required_argument_is_text() -> None:
    text = "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
    assert extract("glm4_native", text) == ExtractedCalls((), text)
    assert len(extract("glm4_native", text + "</tool_call>").calls) == 1


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('get_weather("Paris", 2)', [("get_weather", PARIS)]),
        ("clock.now()", [("clock.now", {})]),
        ('functions.get_weather(city="Paris", days=2)', [("get_weather", PARIS)]),
        ('[get_weather(city="Paris"), clock.now()]', [("get_weather", {"city": "Paris"}), ("clock.now", {})]),
        ('get_weather(city="Paris"); clock.now()', [("get_weather", {"city": "Paris"}), ("clock.now", {})]),
        (r'get_weather(city="\d\n", days=null)', [("get_weather", {"city": "\\d\n", "days": None})]),
        ('{"name": "get_weather", "parameters": {"city": "Paris"}}', [("get_weather", {"city": "Paris"})]),
    ],
)
def test_python_calls(text: str, calls: list[tuple[str, object]]) -> None:
    found = extract("llama_python", f"<|python_tag|>{text}")
    assert [(call.name, json.loads(call.arguments)) for call in found.calls] == calls


@pytest.mark.parametrize("parser_id", ["olmo3", "mlx_lm.pythonic"])
def test_white_space_before_the_bracket_of_a_python_call(parser_id: str) -> None:
    start, end = make_tool_parser(parser_id).markers[0]
    found = extract(parser_id, f"{start}get_weather \t (city='Paris'){end}")
    assert found == ExtractedCalls((ParsedCall("get_weather", '{"city": "Paris"}'),), "")


@pytest.mark.parametrize(
    "text",
    [
        "print(1, 2, 3)",
        "import os",
        "get_weather(**x)",
        "get_weather(city=os.name)",
        "get_weather(city=b'x')",
        "get_weather(",
        "get_weather(city=" + "(" * 5_000,
        "",
        "x = 1",
    ],
)
def test_python_that_is_no_call_is_text(text: str) -> None:
    text = f"<|python_tag|>{text}"
    assert extract("llama_python", text) == ExtractedCalls((), text)


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        (f"\n{WRITTEN['llama_json']}; {WRITTEN['llama_json']}\n", 2, ""),
        (f"<|python_tag|>{WRITTEN['llama_json']}", 1, ""),
        (f"<|python_tag|>{WRITTEN['llama_json']}<|python_tag|>{WRITTEN['llama_json']}<|eom_id|>", 2, ""),
        ('Look: <|python_tag|>{"name": "get_weather", "parameters": {}}', 1, "Look:"),
        (f"{WRITTEN['llama_json']}\nDone.", 1, "Done."),
        ('{ "type" : "function", "name" : "get_weather", "parameters" : {"city": "Paris"}}', 1, ""),
        (f"Sure: {WRITTEN['llama_json']}", 0, f"Sure: {WRITTEN['llama_json']}"),
        ('{"answer": 42}', 0, '{"answer": 42}'),
        ('{"name": "Bob", "age": 7}', 0, '{"name": "Bob", "age": 7}'),
        (f'{{"name": "Bob"}} {WRITTEN["llama_json"]}', 0, f'{{"name": "Bob"}} {WRITTEN["llama_json"]}'),
        ("{" + " " * 1_000 + "}", 0, "{" + " " * 1_000 + "}"),
    ],
)
def test_bare_json_calls(text: str, calls: int, rest: str) -> None:
    found = extract("llama_json", text)
    assert (len(found.calls), found.text) == (calls, rest)


@pytest.mark.parametrize("text", ["</arguments></tool_call>\nDone.", "</arguments>\nDone."])
def test_glm_xml_may_leave_the_outer_tag_open(text: str) -> None:
    found = extract(
        "glm4_xml", f'<tool_call>\n<name>get_weather</name>\n<arguments>{{"city": "Paris"}}{text}'
    )
    assert found == ExtractedCalls((ParsedCall("get_weather", '{"city": "Paris"}'),), "Done.")


def test_a_coder_value_may_hold_the_end_marker() -> None:
    text = WRITTEN["qwen3_coder"].replace("Paris", "print('</tool_call>')")
    (call,) = extract("qwen3_coder", text).calls
    assert json.loads(call.arguments)["city"] == "print('</tool_call>')"


def test_a_coder_call_may_lack_its_outer_tag_and_keeps_the_lines_of_its_values() -> None:
    call = WRITTEN["qwen3_coder"].replace("Paris", "  if x:\n    </function>\n")
    found = extract("qwen3_coder", "First:\n" + call.removeprefix("<tool_call>\n"))
    assert found.text == "First:"
    assert [json.loads(call.arguments) for call in found.calls] == [
        {"city": "  if x:\n    </function>\n", "days": 2}
    ]


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        ('[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "a]b"}, "id": "123456789"}]', 1, ""),
        ('[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "a"}', 1, ""),
        ('Ok.[TOOL_CALLS]clock.now[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{"city": "b"}</s>', 2, "Ok.\n</s>"),
        ('[TOOL_CALLS]get_weather[ARGS]{"city": "b"', 0, '[TOOL_CALLS]get_weather[ARGS]{"city": "b"'),
        ('[TOOL_CALLS]get_weather{"city": "[ARGS]"}[TOOL_CALLS]clock.now{}', 2, ""),
        ("Write [TOOL_CALLS] before calls.", 0, "Write [TOOL_CALLS] before calls."),
    ],
)
def test_mistral_calls(text: str, calls: int, rest: str) -> None:
    found = extract("mistral", text)
    assert (len(found.calls), found.text) == (calls, rest)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("parser_id", WRITTEN)
@given(city=st.text(), extra=JSON_VALUES)
def test_what_a_format_renders_it_reads_again(parser_id: str, city: str, extra: object) -> None:
    if parser_id in UNQUOTED and isinstance(extra, str):
        return
    arguments = json.dumps({"city": city, "extra": extra}, ensure_ascii=False)
    parser = make_tool_parser(parser_id)
    written = parser.render("get_weather", arguments)
    assert written is not None
    (call,) = extract_calls(parser, written, TOOLS).calls
    assert json.loads(call.arguments) == json.loads(arguments)
    if parser_id not in UNQUOTED | REWRITTEN:
        assert call.arguments == arguments


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_a_history_may_hold_arguments_that_are_no_json(parser_id: str) -> None:
    for arguments in ("what?", "[1]", "7", "", '{"a": NaN}', '{"a": [1e999]}'):
        assert arguments in (make_tool_parser(parser_id).render("f", arguments) or "")


@pytest.mark.parametrize(
    ("tool_format", "written"),
    [
        ("mlx_lm.gemma4", '<|tool_call>call:mix{a:None,b:[True,<|"|>x<|"|>]}<tool_call|>'),
        (
            "seed_oss",
            "<seed:tool_call><function=mix><parameter=a>None</parameter>"
            "<parameter=b>[True, '\\x78']</parameter></function></seed:tool_call>",
        ),
    ],
)
def test_values_that_templates_write_as_python_are_read_back(tool_format: str, written: str) -> None:
    properties = {"a": {"type": ["integer", "null"]}, "b": {"type": "array"}}
    tool = Tool("mix", parameters={"type": "object", "properties": properties})
    (call,) = extract_calls(make_tool_parser(tool_format), written, [tool]).calls
    assert json.loads(call.arguments) == {"a": None, "b": [True, "x"]}
