"""Tool-call formats of the Hunyuan models."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.formats.json_blocks import json_block
from greenroom.engine.grammar.call_syntax import CallSyntax, single_trigger
from greenroom.engine.grammar.tagged_calls import TaggedArguments
from greenroom.engine.parsers.block_format import BlockEnd
from greenroom.engine.parsers.block_parser import SectionParser
from greenroom.engine.parsers.json_values import argument_pairs, render_json_call, written_value
from greenroom.engine.parsers.parser import ParsedCall, prefix_pattern
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import ArgumentTags, TaggedCall, read_json_calls
from greenroom.engine.parsers.streamed_values import ValueEnd

# The open models add a label to every tag: `<tool_call:opensource>`.
_LABEL = "(?::opensource)?"
_HEAD = re.compile(rf"<tool_call{_LABEL}>")
_NAME = re.compile(r"[^\s<>{}\[\]]+")


def _both(*tags: str) -> tuple[str, ...]:
    return tuple(f"{tag}{label}>" for label in ("", ":opensource") for tag in tags)


_TAGS = ArgumentTags(
    re.compile(rf"<arg_key{_LABEL}>(?P<key>[^<>]*)</arg_key{_LABEL}>\s*<arg_value{_LABEL}>"),
    ValueEnd(_both("</arg_value"), _both("<arg_key", "</tool_call", "<end_of_tool_call")),
    re.compile(rf"</tool_call{_LABEL}>|<end_of_tool_call{_LABEL}>"),
    opening=re.compile(rf"{_HEAD.pattern}\s*(?P<name>{_NAME.pattern})|<arg_key{_LABEL}>(?P<key>[^<>]*)"),
    # After the first characters of such a tail, no further argument can follow.
    cut_tail=re.compile(rf"(?:<e|</(?:{prefix_pattern('tool_call>')})?)[\w:>-]*"),
)


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

    def read_call(self, text: StreamBuffer) -> IncrementalParser[None]:
        yield from text.match(_HEAD)
        yield from text.peek()
        name = yield from text.match_run(_NAME)
        yield from text.take_any(_both("<tool_sep"))
        yield from TaggedCall(text, name, _TAGS).read()

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


class HunyuanParser(_TaggedCalls):
    """Hunyuan A13B and the dense models: a section with an array of JSON calls; later models write tags."""

    parser_id = "hunyuan"
    markers = (("<tool_calls>", "</tool_calls>"),)
    body_start = re.compile(rf"\s*(?:\Z|[\[{{]|<tool_call>|{prefix_pattern('<tool_call>')}\Z)")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        if (yield from text.peek()) in ("[", "{"):
            yield from read_json_calls(text)
        else:
            yield from super().read_calls(text, start)

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
    read_with_start = ("<tool_call:opensource>", "<tool_call>")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return self.read_call(text) if start in self.read_with_start else super().read_calls(text, start)

    def new_block_end(self, start: str) -> BlockEnd:
        alone = start in self.read_with_start
        return _CallEnd(start, self.ends[start]) if alone else super().new_block_end(start)


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
