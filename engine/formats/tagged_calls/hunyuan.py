"""Tool-call formats of the Hunyuan models."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.formats.json_calls.json_blocks import json_block
from greenroom.engine.grammar.calls.call_syntax import CallSyntax, single_trigger
from greenroom.engine.grammar.calls.tagged_arguments import TaggedArguments
from greenroom.engine.parsers.blocks.block_end import BlockEnd
from greenroom.engine.parsers.blocks.call_sections import SectionParser
from greenroom.engine.parsers.markers import prefix_pattern, skip_space
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_calls import stream_json_calls
from greenroom.engine.parsers.streaming.streamed_tags import StreamedTags, stream_tagged_call
from greenroom.engine.parsers.streaming.streamed_values import ValueEnd
from greenroom.engine.parsers.values.json_calls import parse_json_calls, render_json_call
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.engine.parsers.values.tagged_arguments import (
    argument_pairs,
    read_tagged_arguments,
    written_value,
)

# The open models add a label to every tag: `<tool_call:opensource>`.
_LABEL = "(?::opensource)?"
_HEAD = re.compile(rf"<tool_call{_LABEL}>\s*([^\s<>{{}}\[\]]+)\s*(?:<tool_sep{_LABEL}>\s*)?")
_KEY = re.compile(rf"\s*<arg_key{_LABEL}>(?P<key>[^<>]*)</arg_key{_LABEL}>\s*<arg_value{_LABEL}>", re.DOTALL)
_FOREIGN = re.compile(rf"<arg_(?:key|value){_LABEL}>")
_TAIL = re.compile(rf"\s*(?:</tool_call{_LABEL}>|<end_of_tool_call{_LABEL}>)")
_VALUE_END = re.compile(
    rf"</arg_value{_LABEL}>(?=\s*(?:<arg_key{_LABEL}>|</tool_call{_LABEL}>|<end_of_tool_call{_LABEL}>|\Z))"
)
# After the first characters of such a tail, no further argument can follow.
_CUT_TAIL = re.compile(rf"\s*(?:<e|</(?:{prefix_pattern('tool_call>')})?)[\w:>-]*\Z")


_STREAMED_HEAD = re.compile(rf"<tool_call{_LABEL}>\s*([^\s<>{{}}\[\]]+)\s*<tool_sep{_LABEL}>")


def _tags(label: str) -> StreamedTags:
    followers = (f"<arg_key{label}>", f"</tool_call{label}>", f"<end_of_tool_call{label}>")
    return StreamedTags(_KEY, ValueEnd(f"</arg_value{label}>", followers), _TAIL)


_TAGS = {label: _tags(label) for label in ("", ":opensource")}


class _CallEnd(BlockEnd):
    """Finds the end of a call outside a section and leaves the end marker to the call parser."""

    def find(self, text: str, begin: int, final: bool) -> tuple[int, int] | None:
        found = super().find(text, begin, final)
        return None if found is None else (found[1], found[1])

    def is_cut_short(self, body_end: int, end: int) -> bool:
        return False  # `read_call` checks the end.


class _TaggedCalls(SectionParser):
    """Calls as `<tool_call>name<tool_sep><arg_key>k</arg_key><arg_value>v</arg_value>…</tool_call>`.

    JSON may replace the key-value pairs.
    """

    common_end = "</tool_call"
    label = ""

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        label = ":opensource" if start.endswith(":opensource>") else ""
        while not (text.begun and (yield from text.take_any([self.ends[start]]))):
            yield from text.peek()
            yield from _stream_call(text, label)

    def read_call(self, text: str, position: int, offered: OfferedTools) -> tuple[ParsedCall, int]:
        head = _HEAD.match(text, position)
        if head is None:
            raise Malformed("the call has no name")
        name, position = head.group(1), head.end()
        arguments, end = read_tagged_arguments(name, text, position, offered, _KEY, _VALUE_END, _FOREIGN)
        tail = _TAIL.match(text, end)
        if tail is not None:
            return ParsedCall(name, arguments), tail.end()
        if _CUT_TAIL.match(text, end):
            return ParsedCall(name, arguments), len(text)
        raise Malformed("the call has no end")

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        start, end = f"<tool_calls{self.label}>", f"</tool_calls{self.label}>"
        return "\n".join([start, *map(self._written, calls), end])

    def _written(self, call: ParsedCall) -> str:
        label = self.label
        head, tail = f"<tool_call{label}>{call.name}<tool_sep{label}>\n", f"</tool_call{label}>"
        pairs = argument_pairs(call.arguments)
        if pairs is None:
            return f"{head}{call.arguments}\n{tail}"
        lines = [
            f"<arg_key{label}>{key}</arg_key{label}>\n"
            f"<arg_value{label}>{written_value(value)}</arg_value{label}>\n"
            for key, value in pairs.items()
        ]
        return head + "".join(lines) + tail


def _stream_call(text: GrowingText, label: str) -> Reading[None]:
    head = yield from text.match(_STREAMED_HEAD)
    yield from stream_tagged_call(text, head.group(1), _TAGS[label])


class HunyuanParser(_TaggedCalls):
    """Hunyuan A13B and the dense models: a section with an array of JSON calls; later models write tags."""

    parser_id = "hunyuan"
    markers = (("<tool_calls>", "</tool_calls>"),)
    body_start = re.compile(rf"\s*(?:\Z|[\[{{]|<tool_call>|{prefix_pattern('<tool_call>')}\Z)")

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        if (yield from text.peek()) in "[{":
            yield from stream_json_calls(text, self.ends[start])
        else:
            yield from super().stream_calls(text, start)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        if body.startswith(("[", "{"), skip_space(body, 0)):
            return parse_json_calls(body)
        return super().parse_block(body, start, offered)

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        written = ", ".join(render_json_call(call.name, call.arguments) for call in calls)
        return f"<tool_calls>[{written}]</tool_calls>"


class HunyuanV3Parser(_TaggedCalls):
    """Hunyuan 3: labeled tags in a section, whose markers these models sometimes omit."""

    parser_id = "hunyuan_v3"
    label = ":opensource"
    markers = (
        ("<tool_calls:opensource>", "</tool_calls:opensource>"),
        ("<tool_call:opensource>", "<end_of_tool_call:opensource>"),
        ("<tool_calls>", "</tool_calls>"),
        ("<tool_call>", "<end_of_tool_call>"),
    )

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        if start.startswith("<tool_calls"):
            return super().stream_calls(text, start)
        text.text = start
        return _stream_call(text, ":opensource" if "opensource" in start else "")

    def new_block_end(self, start: str) -> BlockEnd:
        in_section = start.startswith("<tool_calls")
        return super().new_block_end(start) if in_section else _CallEnd(start, self.ends[start])

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        if start.startswith("<tool_calls"):
            return super().parse_block(body, start, offered)
        return super().parse_block(start + body, start, offered)


def _arguments(label: str) -> TaggedArguments:
    return TaggedArguments(
        head=f"<tool_call{label}>{{}}<tool_sep{label}>\n",
        before=f"<arg_key{label}>{{}}</arg_key{label}>\n<arg_value{label}>",
        end=f"</arg_value{label}>",
        tail=f"</tool_call{label}>",
        space="",
        foreign=("<arg_",),
    )


def _without_section(label: str) -> TaggedArguments:
    arguments = _arguments(label)
    start = f"<tool_call{label}>"
    return attrs.evolve(arguments, head=arguments.head.removeprefix(start), tail=f"<end_of_tool_call{label}>")


HUNYUAN = CallFormat(
    "hunyuan",
    HunyuanParser,
    single_trigger("<tool_calls>", json_block("list", "arguments", "</tool_calls>")),
    '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]</tool_calls>',
    templates=(
        TemplateWords(("<tool_sep>",), absent=(":opensource",)),
        TemplateWords(("<tool_calls>", "<|extra_4|>")),
    ),
)
HUNYUAN_V3 = CallFormat(
    "hunyuan_v3",
    HunyuanV3Parser,
    CallSyntax(
        (
            ("<tool_calls:opensource>", _arguments(":opensource").section("</tool_calls:opensource>")),
            ("<tool_call:opensource>", _without_section(":opensource").alone()),
            ("<tool_calls>", _arguments("").section("</tool_calls>")),
            ("<tool_call>", _without_section("").alone()),
        )
    ),
    "<tool_calls:opensource>\n"
    "<tool_call:opensource>get_weather<tool_sep:opensource>\n"
    "<arg_key:opensource>city</arg_key:opensource>\n"
    "<arg_value:opensource>Paris</arg_value:opensource>\n"
    "<arg_key:opensource>days</arg_key:opensource>\n"
    "<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n"
    "</tool_calls:opensource>",
    templates=(TemplateWords((":opensource", "<tool_sep")),),
)
