"""Tool-call format of the xLAM models."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_bodies import json_list
from greenroom.engine.grammar.call_syntax import CallSyntax, no_call
from greenroom.engine.parsers.block_parser import JSON_STARTS, BareBlockParser, begins_bare_json
from greenroom.engine.parsers.json_values import render_json_call
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_json_calls

_LIST_STARTS = tuple(f"[{start}" for start in JSON_STARTS)


class XlamParser(BareBlockParser):
    """xLAM: an array of calls as the whole answer, or behind one of several markers."""

    parser_id = "xlam"
    markers = (("```json", "```"), ("<tool_call>", "</tool_call>"), ("[TOOL_CALLS]", ""))
    json_header = re.compile(r"[ \t\r\n]*(?=\[)")
    body_start = re.compile(r'[ \t\r\n]*(?:\Z|\[[ \t\r\n]*(?:\Z|\{[ \t\r\n]*(?:\Z|")))')

    def begins_bare(self, text: str) -> bool | None:
        return begins_bare_json(text, _LIST_STARTS)

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_json_calls(text)

    def render(self, name: str, arguments: str) -> str:
        return self.render_all([ParsedCall(name, arguments)])

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return f"[{', '.join(render_json_call(call.name, call.arguments) for call in calls)}]"


XLAM = CallFormat(
    "xlam",
    XlamParser,
    CallSyntax(
        (("", json_list),), single_block=True, plain=no_call("[", "```json", "<tool_call>", "[TOOL_CALLS]")
    ),
    '[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    templates=(TemplateWords(("make calls in a single JSON array",)),),
)
