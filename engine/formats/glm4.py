"""Tool-call formats of the GLM-4 models and LongCat."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from greenroom.engine.formats.call_format import CallFormat, TemplateWords
from greenroom.engine.grammar.call_bodies import alternatives
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.grammar.grammar_builder import SPACE
from greenroom.engine.grammar.tagged_calls import TaggedArguments
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.json_values import argument_pairs, written_value
from greenroom.engine.parsers.parser import Markers, prefix_pattern
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import (
    ArgumentTags,
    TaggedCall,
    read_headed_call,
    read_json_calls,
)
from greenroom.engine.parsers.streamed_values import ValueEnd

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


_NAME = re.compile(r"[^\s<>{}\[\]]+")


class Glm4NativeParser(BlockParser):
    """GLM-4.5 to 4.7: `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>…</tool_call>`.

    Strings are unquoted, so the tool's schema decides a value's type. A value that contains the tags of
    another argument is malformed: an end tag is missing, and only a guess could separate the two.
    """

    parser_id = "glm4_native"
    markers: Markers = (("<tool_call>", "</tool_call>"),)
    body_start = re.compile(r"\s*(?:\Z|[{\[]|[^\s<>{}\[\]]+\s*(?:\Z|[<{]))")
    _prefix = ""

    def __init__(self) -> None:
        tag, ((start, end),) = self._prefix, self.markers
        self._tags = ArgumentTags(
            re.compile(rf"<{tag}arg_key>(?P<key>[^<>]*)</{tag}arg_key>\s*<{tag}arg_value>"),
            ValueEnd((f"</{tag}arg_value>",), (f"<{tag}arg_key>", end)),
            tail=None,
            opening=re.compile(
                rf"{re.escape(start)}\s*(?P<name>{_NAME.pattern})|<{tag}arg_key>(?P<key>[^<>]*)"
            ),
        )
        super().__init__()

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        if (yield from text.peek()) in ("{", "["):  # Some of these models fall back on JSON.
            yield from read_json_calls(text)
        else:
            name = yield from text.match_run(_NAME)
            yield from TaggedCall(text, name, self._tags).read()

    def is_whole(self, body: str, rest: str) -> bool:
        return rest.startswith("</") or body.lstrip().startswith(("{", "["))

    def render(self, name: str, arguments: str) -> str:
        tag, ((start, end),) = self._prefix, self.markers
        pairs = argument_pairs(arguments)
        if pairs is None:
            return f"{start}{name}\n{arguments}\n{end}"
        lines = [
            f"<{tag}arg_key>{key}</{tag}arg_key>\n<{tag}arg_value>{written_value(value)}</{tag}arg_value>\n"
            for key, value in pairs.items()
        ]
        return f"{start}{name}\n{''.join(lines)}{end}"


class LongcatParser(Glm4NativeParser):
    """LongCat: GLM-4.5's format with its own tag names."""

    parser_id = "mlx_lm.longcat"
    markers = (("<longcat_tool_call>", "</longcat_tool_call>"),)
    _prefix = "longcat_"


class Glm4XmlParser(BlockParser):
    """GLM-4: `<tool_call><name>fn</name><arguments>{…}</arguments>` with an optional `</tool_call>`."""

    parser_id = "glm4_xml"
    markers = (("<tool_call>", "</arguments>"),)
    trailer = "</tool_call>"
    body_start = re.compile(rf"\s*(?:\Z|<name>|{prefix_pattern('<name>')}\Z)")
    _header = re.compile(r"\s*<name>\s*([^<>]+?)\s*</name>\s*<arguments>")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return read_headed_call(text, self._header, may_be_bare=True)

    def is_whole(self, body: str, rest: str) -> bool:
        return body.rstrip().endswith("}")

    def render(self, name: str, arguments: str) -> str:
        return f"<tool_call><name>{name}</name><arguments>{arguments or '{}'}</arguments></tool_call>"


def _xml(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    def written(tool: ConstrainedTool, json: str) -> str:
        head = text.fixed_text(f"<name>{tool.plain_name}</name><arguments>")
        return f"{head} {json} {text.fixed_text('</arguments>')}"

    return f"{SPACE} {alternatives(tools, written, text)} {SPACE} {text.fixed_text('</tool_call>')}"


_ARGUMENTS = TaggedArguments(
    head="{}\n",
    before="<arg_key>{}</arg_key>\n<arg_value>",
    end="</arg_value>",
    tail="",
    space="",
    foreign=("<arg_",),
)
_LONGCAT_ARGUMENTS = attrs.evolve(
    _ARGUMENTS,
    before="<longcat_arg_key>{}</longcat_arg_key>\n<longcat_arg_value>",
    end="</longcat_arg_value>",
    close="</longcat_tool_call>",
    foreign=("<longcat_arg_",),
)

GLM4_NATIVE = CallFormat(
    "glm4_native",
    Glm4NativeParser,
    single_trigger("<tool_call>", _ARGUMENTS.block()),
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    mlx_lm_names=("glm47", "laguna"),
)
LONGCAT = CallFormat(
    "mlx_lm.longcat",
    LongcatParser,
    single_trigger("<longcat_tool_call>", _LONGCAT_ARGUMENTS.block()),
    "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n"
    "<longcat_arg_value>Paris</longcat_arg_value>\n"
    "<longcat_arg_key>days</longcat_arg_key>\n"
    "<longcat_arg_value>2</longcat_arg_value>\n</longcat_tool_call>",
)
GLM4_XML = CallFormat(
    "glm4_xml",
    Glm4XmlParser,
    single_trigger("<tool_call>", _xml),
    '<tool_call><name>get_weather</name><arguments>{"city": "Paris", "days": 2}</arguments></tool_call>',
    templates=(TemplateWords(("<tool_call>", "<name>", "<arguments>")),),
)
