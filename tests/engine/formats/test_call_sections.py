"""Tool calls in sections: DeepSeek, Step 3, Hunyuan."""

from __future__ import annotations

import json

import pytest

from greenroom.engine.formats.registry import make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract

SECTIONS = ("deepseek_v3", "deepseek_v31", "deepseek_dsml", "step3", "hunyuan", "hunyuan_v3")
OSLO = ParsedCall("get_weather", '{"city": "Oslo"}')
NOW = ParsedCall("clock.now", "{}")


@pytest.mark.parametrize("parser_id", SECTIONS)
def test_the_calls_of_one_turn_stand_in_one_section(parser_id: str) -> None:
    parser = make_tool_parser(parser_id)
    written = parser.render_all([OSLO, NOW])
    assert written is not None
    start, end = parser.markers[0]
    assert (written.count(start), written.count(end)) == (1, 1)
    found = extract(parser_id, f"So.\n{written}\nYes.")
    assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("clock.now", {}),
    ]
    assert found.text == "So.\nYes."


@pytest.mark.parametrize("parser_id", SECTIONS)
def test_a_section_of_which_a_part_is_no_call_is_text(parser_id: str) -> None:
    start, end = make_tool_parser(parser_id).markers[0]
    written = WRITTEN[parser_id].replace(end, f" and more{end}")
    for text in (f"{start}{end}", f"{start}\n?{end}", written):
        assert not extract(parser_id, text).calls
        assert extract(parser_id, text).text == text


@pytest.mark.parametrize("parser_id", SECTIONS)
def test_the_end_of_a_section_may_stand_in_a_value(parser_id: str) -> None:
    parser = make_tool_parser(parser_id)
    arguments = {"city": f"a {parser.markers[0][1]} b"}
    written = parser.render("get_weather", json.dumps(arguments, ensure_ascii=False))
    assert written is not None
    (call,) = extract(parser_id, written).calls
    assert json.loads(call.arguments) == arguments


def _dsml(body: str, name: str = "function_calls") -> str:
    body = body.replace("<", "<｜DSML｜").replace("<｜DSML｜/", "</｜DSML｜")
    return f"<｜DSML｜{name}>{body}</｜DSML｜{name}>"


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        (
            '<invoke name="get_weather"><parameter name="city" string="true"> 7 </parameter></invoke>',
            {"city": " 7 "},
        ),
        (
            '<invoke name="get_weather"><parameter name="x" string="false">[1]</parameter></invoke>',
            {"x": [1]},
        ),
        ('<invoke name="get_weather"><parameter name="city">7</parameter></invoke>', {"city": "7"}),
        ('<invoke name="get_weather">\n{"city": "Oslo"}\n</invoke>', {"city": "Oslo"}),
        ('<invoke name="get_weather"/>', {}),
        ('<invoke name="get_weather">\n</invoke>', {}),
        (
            '<invoke name="get_weather"><parameter name="city" string="true">'
            "see </parameter> there</parameter></invoke>",
            {"city": "see </｜DSML｜parameter> there"},
        ),
    ],
)
def test_values_between_tags_with_attributes(body: str, arguments: dict[str, object]) -> None:
    for section in ("function_calls", "tool_calls"):
        (call,) = extract("deepseek_dsml", _dsml(body, section)).calls
        assert json.loads(call.arguments) == arguments


def test_a_call_that_is_cut_between_two_arguments_is_not_made() -> None:
    whole = WRITTEN["deepseek_dsml"]
    cut = whole[: whole.index("<｜DSML｜parameter", whole.index("<｜DSML｜parameter") + 1)]
    assert extract("deepseek_dsml", cut) == ExtractedCalls((), cut)
    assert extract("deepseek_dsml", whole[: whole.index("</｜DSML｜invoke>") + 4]).calls


def test_hunyuan_writes_tags_or_json() -> None:
    for body in (
        '[{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
        '<tool_call>get_weather<tool_sep>{"city": "Oslo"}</tool_call>',
        "<tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>",
    ):
        (call,) = extract("hunyuan", f"<tool_calls>{body}</tool_calls>").calls
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo"})


def test_hunyuan_3_may_forget_its_section() -> None:
    one = (
        '<tool_call:opensource>get_weather<tool_sep:opensource>{"city": "Oslo"}<end_of_tool_call:opensource>'
    )
    found = extract("hunyuan_v3", f"Both: {one}{one}")
    assert (len(found.calls), found.text) == (2, "Both:")


def test_markers_of_results_are_no_text_of_deepseek() -> None:
    found = extract("deepseek_v31", "It is <｜tool▁output▁begin｜>22°<｜tool▁output▁end｜>.", TOOLS)
    assert found.text == "It is 22°."
