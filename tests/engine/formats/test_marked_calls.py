"""Formats that put tool calls of a common shape between markers of their own."""

from __future__ import annotations

import json

import pytest

from greenroom.engine.formats.registry import make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls
from greenroom.tests.support.parsers.tool_call_examples import PARIS, WRITTEN
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        (f"<|START_RESPONSE|>I look.<|END_RESPONSE|>\n{WRITTEN['cohere2']}", 1, "I look."),
        ("<|START_TEXT|>Only text.<|END_TEXT|>", 0, "Only text."),
        ('<|START_ACTION|>{"tool_name": "clock.now"}<|END_ACTION|>', 1, ""),
        ('<|START_ACTION|>[{"tool_name": "clock.now"}, {"name": "clock.now"}]<|END_ACTION|>', 2, ""),
        ("Write <|START_ACTION|> first.", 0, "Write <|START_ACTION|> first."),
    ],
)
def test_actions_of_cohere(text: str, calls: int, rest: str) -> None:
    found = extract("cohere2", text)
    assert (len(found.calls), found.text) == (calls, rest)


@pytest.mark.parametrize("space", ["", " ", "\n"])
def test_the_action_of_command_r_may_hold_a_fence(space: str) -> None:
    text = WRITTEN["command_r"].replace(":\n```json", f":{space}```json").replace("Paris", "```sh\\n```")
    (call,) = extract("command_r", text).calls
    assert json.loads(call.arguments)["city"] == "```sh\n```"
    mentioned = "Action: ```json\nis how it begins.\n```"
    assert extract("command_r", mentioned) == ExtractedCalls((), mentioned)


def test_values_of_seed_keep_their_lines() -> None:
    value = "def f():\n    '</seed:tool_call>'\n"
    written = make_tool_parser("seed_oss").render("get_weather", json.dumps({"city": value}))
    assert written is not None
    assert written.startswith("<seed:tool_call>\n<function=get_weather>\n<parameter=city>")
    (call,) = extract("seed_oss", written).calls
    assert json.loads(call.arguments) == {"city": value}


@pytest.mark.parametrize(
    "parser_id",
    ["apriel", "bare_pythonic", "cohere2", "command_r", "minimax_m1", "olmo3", "mlx_lm.pythonic"],
)
def test_formats_with_one_block_write_all_calls_into_it(parser_id: str) -> None:
    parser = make_tool_parser(parser_id)
    calls = [ParsedCall("get_weather", json.dumps(PARIS)), ParsedCall("clock.now", "{}")]
    written = parser.render_all(calls)
    assert written is not None
    assert sum(written.count(start) for start, _ in parser.markers if start) <= 1
    assert extract(parser_id, written) == ExtractedCalls(tuple(calls), "")
