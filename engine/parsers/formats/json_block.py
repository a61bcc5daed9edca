"""Tool calls as JSON behind a marker; many families differ only in the marker and the JSON's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal

import attrs

from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.formats.hermes import JSON_BODY
from greenroom.engine.parsers.markers import Markers
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_calls import stream_json_calls
from greenroom.engine.parsers.values.json_calls import parse_json_calls, parse_keyed_calls, render_json_call
from greenroom.engine.parsers.values.offered_tools import OfferedTools

Shape = Literal["list", "object", "keyed list"]
"""JSON shape: an array of calls, one object per call, or an array of objects with the name as only key."""


@attrs.frozen
class JsonBlockFormat:
    """A model family's format of JSON tool-call blocks.

    Args:
        parser_id: Id of the parser and of the grammar.
        markers: Pairs of markers that open and close a block; the end is empty if the JSON value ends the
            block. Rendering uses the first pair; parsing accepts all.
        shape: Shape of the JSON between the markers.
        key: Key of the rendered arguments; the parser accepts both `arguments` and `parameters`.
        before: Text rendered before the opening marker.
        space: Text rendered behind the opening marker.
        after: Text rendered before the closing marker.
        trailer: Marker that may follow a block and is dropped.
        last: Marker that is dropped at the end of an answer.
    """

    parser_id: str
    markers: Markers
    shape: Shape = "list"
    key: str = "arguments"
    before: str = ""
    space: str = ""
    after: str = ""
    trailer: str = ""
    last: str = ""


JSON_BLOCK_FORMATS = (
    JsonBlockFormat("jamba", (("<tool_calls>", "</tool_calls>"),)),
    JsonBlockFormat("nemotron_v2", (("<TOOLCALL>", "</TOOLCALL>"),), trailer="<SPECIAL_12>"),
    JsonBlockFormat("apertus", (("<|tools_prefix|>", "<|tools_suffix|>"),), "keyed list"),
    # Phi-4-mini writes the tags if its tools are listed between `<|tool|>` tags.
    JsonBlockFormat("phi4mini", (("functools", ""), ("<|tool_call|>", "<|/tool_call|>"))),
    JsonBlockFormat("firefunction", (("functools", ""),), before=" "),
    JsonBlockFormat("granite_20b", (("<function_call>", ""),), "object", space=" "),
    JsonBlockFormat(
        "internlm2", (("<|action_start|><|plugin|>", "<|action_end|>"),), "object", "parameters", space="\n"
    ),
    # GigaChat 3.0 changes the role of the message; 3.1 has a token for calls.
    JsonBlockFormat(
        "gigachat3",
        (("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""), ("<|function_call|>", "")),
        "object",
        trailer="</s>",
        last="<|message_sep|>",
    ),
    JsonBlockFormat("ernie45", (("<tool_call>", "</tool_call>"),), "object", space="\n", after="\n"),
)
"""All families with this kind of format."""


class JsonBlockParser(BlockParser):
    """Parses and renders one of these formats."""

    body_start = JSON_BODY
    json_header = re.compile(r"[ \t\r\n]*(?=[\[{])")

    def __init__(self, block_format: JsonBlockFormat) -> None:
        self.parser_id = block_format.parser_id
        self.markers = block_format.markers
        self.trailer = block_format.trailer
        self.last = block_format.last
        self._format = block_format
        super().__init__()

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return stream_json_calls(text, self.ends[start], self._format.shape == "keyed list")

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        return parse_keyed_calls(body) if self._format.shape == "keyed list" else parse_json_calls(body)

    def render(self, name: str, arguments: str) -> str:
        return self.render_all([ParsedCall(name, arguments)])

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        written = [self._call(call) for call in calls]
        if self._format.shape == "object":
            return "\n".join(map(self._block, written))
        return self._block(f"[{', '.join(written)}]")

    def _call(self, call: ParsedCall) -> str:
        if self._format.shape == "keyed list":
            return f"{{{json.dumps(call.name, ensure_ascii=False)}: {call.arguments or '{}'}}}"
        return render_json_call(call.name, call.arguments, self._format.key)

    def _block(self, body: str) -> str:
        start, end = self.markers[0]
        after = self._format.after
        return f"{self._format.before}{start}{self._format.space}{body}{after}{end}"
