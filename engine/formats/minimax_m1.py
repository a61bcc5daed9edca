"""Tool calls as JSON between `<tool_calls>` and `</tool_calls>`: MiniMax M1 and Apriel."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.formats.hermes import HermesJsonParser
from greenroom.engine.grammar.call_bodies import tagged_array, tagged_lines
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.parsers.block_parser import OneBlockParser
from greenroom.engine.parsers.json_values import render_json_call
from greenroom.engine.parsers.parser import Markers, ParsedCall


class MinimaxM1Parser(OneBlockParser, HermesJsonParser):
    """MiniMax M1: JSON objects, one per line, between `<tool_calls>` and `</tool_calls>`."""

    parser_id = "minimax_m1"
    markers: Markers = (("<tool_calls>", "</tool_calls>"),)

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        lines = [render_json_call(call.name, call.arguments) for call in calls]
        return "\n".join(["<tool_calls>", *lines, "</tool_calls>"])


class AprielParser(MinimaxM1Parser):
    """Apriel: an array of calls between MiniMax M1's markers."""

    parser_id = "apriel"

    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        array = ", ".join(render_json_call(call.name, call.arguments) for call in calls)
        return f"<tool_calls>[{array}]</tool_calls>"


APRIEL = CallFormat(
    "apriel",
    AprielParser,
    single_trigger("<tool_calls>", tagged_array("</tool_calls>")),
    '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]</tool_calls>',
    templates=(TemplateWords(("<tool_calls>", "[BEGIN FINAL RESPONSE]")),),
)
MINIMAX_M1 = CallFormat(
    "minimax_m1",
    MinimaxM1Parser,
    single_trigger("<tool_calls>", tagged_lines("</tool_calls>")),
    '<tool_calls>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_calls>',
    templates=(TemplateWords(("<tool_calls>", "</tool_calls>"), absent=("<tool_call>", "<tool_calls>[")),),
)
