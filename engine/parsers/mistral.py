"""The formats of the Mistral models."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.engine.parsers.base import ParsedCall, Release, ToolCallStream
from greenroom.engine.parsers.block_stream import BlockParser
from greenroom.engine.parsers.json_calls import object_text, parse_json_calls
from greenroom.engine.parsers.json_ended_stream import JsonEndedStream
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.schemas.messages import Tool

_NAMED = r"\s*([\w.-]+)\s*(?:\[CALL_ID\][\w-]*)?\[ARGS\]\s*"


class MistralParser(BlockParser):
    """`[TOOL_CALLS][{"name": …, "arguments": …}, …]`, or `[TOOL_CALLS]name[ARGS]{…}` for each call."""

    parser_id = "mistral"
    markers = (("[TOOL_CALLS]", ""),)
    body_start = re.compile(r"\s*(?:\Z|[\[{]|[\w.-]+\s*(?:\Z|\[))")
    live_header = re.compile(rf"{_NAMED}(?=\{{)")
    _named = re.compile(_NAMED)
    _before_value = re.compile(rf"(?:{_NAMED}|\s*)(?=[\[{{])")

    def new(self, tools: Sequence[Tool] | None = None, release: Release = "validated") -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return JsonEndedStream(self, OfferedTools(tools), release, self._before_value)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        named = self._named.match(body)
        if named is None:
            return parse_json_calls(body)
        return [ParsedCall(named.group(1), object_text(body[named.end() :].strip()))]

    def render(self, name: str, arguments: str) -> str:
        return f"[TOOL_CALLS]{name}[ARGS]{arguments or '{}'}"
