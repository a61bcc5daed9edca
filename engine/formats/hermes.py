"""The format `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen, Granite 4 and others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_bodies import json_call, json_list
from greenroom.engine.grammar.call_syntax import CallSyntax, single_trigger
from greenroom.engine.grammar.lark_text import SPACE
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.json_values import render_json_call
from greenroom.engine.parsers.parser import Markers, ParsedCall
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_json_calls

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


JSON_BODY = re.compile(r"[ \t\r\n]*(?:\Z|[{\[][ \t\r\n]*(?:\Z|[\"{\[}]))")


class HermesJsonParser(BlockParser):
    """JSON tool calls between `<tool_call>` and `</tool_call>`."""

    parser_id = "hermes_json"
    markers: Markers = (("<tool_call>", "</tool_call>"),)
    body_start = JSON_BODY

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_json_calls(text)

    def render(self, name: str, arguments: str) -> str:
        return f"<tool_call>\n{render_json_call(name, arguments)}\n</tool_call>"


class GraniteJsonParser(HermesJsonParser):
    """Granite 3: an array of calls from `<|tool_call|>` to the end of the answer."""

    parser_id = "granite_json"
    markers = (("<|tool_call|>", ""), ("<tool_call>", "</tool_call>"))

    def render(self, name: str, arguments: str) -> str:
        return self.render_all([ParsedCall(name, arguments)])

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return f"<|tool_call|>[{', '.join(render_json_call(call.name, call.arguments) for call in calls)}]"


def _hermes(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    return f"{SPACE} {json_call(text, tools, 'arguments')} {SPACE} {text.fixed_text('</tool_call>')}"


HERMES = CallFormat(
    "hermes_json",
    HermesJsonParser,
    single_trigger("<tool_call>", _hermes),
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>',
    templates=(TemplateWords(("<tool_call>",), distinctive=False),),
    mlx_lm_names=("json_tools",),
)
GRANITE = CallFormat(
    "granite_json",
    GraniteJsonParser,
    CallSyntax((("<|tool_call|>", json_list), ("<tool_call>", _hermes)), single_block=True),
    '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    templates=(TemplateWords(("<|tool_call|>",), distinctive=False),),
)
