"""Tool-call formats of the Mistral models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.call_bodies import alternatives, json_list
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.parser import TOOL_NAME, ParsedCall
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_named_or_json

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


_NAMED = rf"\s*({TOOL_NAME})\s*(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\]\s*|(?=\{{))"


class MistralParser(BlockParser):
    """`[TOOL_CALLS][{"name": …, "arguments": …}, …]`, or `[TOOL_CALLS]name[ARGS]{…}` for each call.

    Some of these models omit `[ARGS]`.
    """

    parser_id = "mistral"
    markers = (("[TOOL_CALLS]", ""),)
    body_start = re.compile(rf"\s*(?:\Z|[\[{{]|{TOOL_NAME}\s*(?:\Z|[\[{{]))")
    _named = re.compile(rf"{_NAMED}(?=\{{)")
    json_header = re.compile(rf"(?:{_NAMED}|\s*)(?=[\[{{])")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_named_or_json(text, self._named)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return "".join(self.render(call.name, call.arguments) for call in calls)

    def render(self, name: str, arguments: str) -> str:
        return f"[TOOL_CALLS]{name}[ARGS]{arguments or '{}'}"


def _mistral(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    arguments = text.tokenizer.special("[ARGS]")
    if arguments is None:
        return json_list(text, tools, many)

    def written(tool: ConstrainedTool, json: str) -> str:
        return f"{text.fixed_text(tool.plain_name)} <[{arguments}]> {json}"

    return alternatives(tools, written, text)


MISTRAL = CallFormat(
    "mistral",
    MistralParser,
    single_trigger("[TOOL_CALLS]", _mistral),
    '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}',
    mlx_lm_names=("mistral",),
)
