"""Tool calls as JSON behind a marker (Hermes, xLAM, MiniMax M1, …), which differ in marker and shape."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import attrs

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_bodies import (
    json_call,
    json_list,
    keyed_call,
    open_list,
    tagged_array,
    tagged_lines,
)
from greenroom.engine.grammar.call_syntax import Body, CallSyntax, no_call, single_trigger
from greenroom.engine.grammar.grammar_builder import SPACE
from greenroom.engine.parsers.block_parser import (
    JSON_STARTS,
    BareBlockParser,
    BlockParser,
    OneBlockParser,
    begins_bare_json,
)
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


class GraniteJsonParser(OneBlockParser, HermesJsonParser):
    """Granite 3: an array of calls from `<|tool_call|>` to the end of the answer."""

    parser_id = "granite_json"
    markers = (("<|tool_call|>", ""), ("<tool_call>", "</tool_call>"))

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


Shape = Literal["list", "object", "keyed list"]
"""JSON shape: an array of calls, one object per call, or an array of objects with the name as only key."""


@attrs.frozen
class JsonBlockFormat:
    """A model family's format of JSON tool-call blocks.

    Args:
        markers: Pairs of markers that open and close a block; the end is empty if the JSON value ends the
            block. Rendering uses the first pair; parsing accepts all.
        key: Key of the rendered arguments; the parser accepts both `arguments` and `parameters`.
        space: Text rendered behind the opening marker.
        after: Text rendered before the closing marker.
        trailer: Marker that may follow a block and is dropped.
        last: Marker that is dropped at the end of an answer.
        templates, example: See `CallFormat`.
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
    templates: tuple[TemplateWords, ...] = attrs.field(default=(), kw_only=True)
    example: str = attrs.field(kw_only=True)


class JsonBlockParser(OneBlockParser):
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

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_json_calls(text, self._format.shape == "keyed list")

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


def json_block(shape: Shape, key: str, end: str) -> Body:
    """Return the body of a block of JSON calls, up to and including its end marker. `end`: end marker; empty
    if the JSON value ends the block.
    """

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        listed = shape != "object"
        several = many and listed
        keyed = shape == "keyed list"
        calls = keyed_call(text, tools, several) if keyed else json_call(text, tools, key, several)
        written = f'"[" {calls} "]"' if listed and not several else calls
        closing = f"{SPACE} {text.fixed_text(end)}" if end else ""
        return f"{SPACE} {written} {closing}"

    return body


def _syntax(block_format: JsonBlockFormat) -> CallSyntax:
    triggers = []
    for start, end in block_format.markers:
        if start.isalpha():  # Text may mention such a word; followed by a bracket, it is a call.
            triggers.append((f"{start}[", open_list(block_format.key)))
        else:
            triggers.append((start, json_block(block_format.shape, block_format.key, end)))
    return CallSyntax(tuple(triggers))


JSON_BLOCKS = (
    JsonBlockFormat(
        "nemotron_v2",
        (("<TOOLCALL>", "</TOOLCALL>"),),
        trailer="<SPECIAL_12>",
        templates=(TemplateWords(("<TOOLCALL>",)),),
        example=('<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]</TOOLCALL>'),
    ),
    JsonBlockFormat(
        "apertus",
        (("<|tools_prefix|>", "<|tools_suffix|>"),),
        "keyed list",
        templates=(TemplateWords(("<|tools_prefix|>",)),),
        example='<|tools_prefix|>[{"get_weather": {"city": "Paris", "days": 2}}]<|tools_suffix|>',
    ),
    JsonBlockFormat(
        # These models write the tags if their tools are listed between `<|tool|>` tags.
        "phi4mini",
        (("functools", ""), ("<|tool_call|>", "<|/tool_call|>")),
        templates=(
            TemplateWords(("functools[",), absent=("<|start_header_id|>",)),
            TemplateWords(("<|tool|>", "<|/tool|>")),
        ),
        example='functools[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    ),
    JsonBlockFormat(
        "firefunction",
        (("functools", ""),),
        before=" ",
        templates=(TemplateWords(("functools", "<|start_header_id|>")),),
        example='functools[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    ),
    JsonBlockFormat(
        "granite_20b",
        (("<function_call>", ""),),
        "object",
        space=" ",
        templates=(TemplateWords(("<function_call>",)),),
        example='<function_call> {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}',
    ),
    JsonBlockFormat(
        "internlm2",
        (("<|action_start|><|plugin|>", "<|action_end|>"),),
        "object",
        "parameters",
        space="\n",
        templates=(TemplateWords(("<|action_start|>", "<|plugin|>")),),
        example=(
            "<|action_start|><|plugin|>\n"
            '{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}<|action_end|>'
        ),
    ),
    JsonBlockFormat(
        # GigaChat 3.0 changes the role of the message; 3.1 has a token for calls.
        "gigachat3",
        (("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""), ("<|function_call|>", "")),
        "object",
        trailer="</s>",
        last="<|message_sep|>",
        templates=(TemplateWords(("<|role_sep|>", "function call")), TemplateWords(("<|function_call|>",))),
        example=(
            "<|message_sep|>\n\nfunction call<|role_sep|>\n"
            '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}'
        ),
    ),
    JsonBlockFormat(
        "jamba",
        (("<tool_calls>", "</tool_calls>"),),
        templates=(TemplateWords(("<tool_calls>", "<|bom|>")),),
        example=(
            "<tool_calls>[\n"
            '    {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n'
            "]</tool_calls>"
        ),
    ),
    JsonBlockFormat(
        "ernie45",
        (("<tool_call>", "</tool_call>"),),
        "object",
        space="\n",
        after="\n",
        templates=(TemplateWords(("<tool_call>", "<response>")),),
        example=(
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
        ),
    ),
)

FORMATS = tuple(
    CallFormat(
        block.parser_id,
        partial(JsonBlockParser, block),
        _syntax(block),
        block.example,
        templates=block.templates,
    )
    for block in JSON_BLOCKS
)


_LIST_STARTS = tuple(f"[{start}" for start in JSON_STARTS)


class XlamParser(BareBlockParser, OneBlockParser):
    """xLAM: an array of calls as the whole answer, or behind one of several markers."""

    parser_id = "xlam"
    markers = (("```json", "```"), ("<tool_call>", "</tool_call>"), ("[TOOL_CALLS]", ""))
    json_header = re.compile(r"[ \t\r\n]*(?=\[)")
    body_start = re.compile(r'[ \t\r\n]*(?:\Z|\[[ \t\r\n]*(?:\Z|\{[ \t\r\n]*(?:\Z|")))')

    def begins_bare(self, text: str) -> bool | None:
        return begins_bare_json(text, _LIST_STARTS)

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_json_calls(text)

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


class MinimaxM1Parser(OneBlockParser, HermesJsonParser):
    """MiniMax M1: JSON objects, one per line, between `<tool_calls>` and `</tool_calls>`."""

    parser_id = "minimax_m1"
    markers: Markers = (("<tool_calls>", "</tool_calls>"),)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        lines = [render_json_call(call.name, call.arguments) for call in calls]
        return "\n".join(["<tool_calls>", *lines, "</tool_calls>"])


class AprielParser(MinimaxM1Parser):
    """Apriel: an array of calls between MiniMax M1's markers."""

    parser_id = "apriel"

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
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
