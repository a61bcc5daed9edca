"""Tool-call format of MiniCPM 5: `<function name="f"><param name="k">v</param></function>`, XML values."""

from __future__ import annotations

import re
from typing import Any

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.calls.call_syntax import single_trigger
from greenroom.engine.grammar.calls.tagged_arguments import TaggedArguments
from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.markers import WHITESPACE, prefix_pattern, skip_space
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_tags import StreamedTags, stream_tagged_call
from greenroom.engine.parsers.streaming.streamed_values import ValueEnd
from greenroom.engine.parsers.values.json_calls import dump_json, normalize_object
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.engine.parsers.values.tagged_arguments import argument_pairs, written_value

_QUOTED = r"(?:\"([^\"<>]+)\"|'([^'<>]+)')"
_NAME = re.compile(rf"\s*{_QUOTED}\s*>")
_KEY = re.compile(rf"\s*<param\s+name\s*=\s*{_QUOTED}\s*>")
_VALUE_END = re.compile(rf"</param>(?=\s*(?:<param\s+name|(?:{prefix_pattern('</function>')})?\Z))")
_CDATA_START = re.compile(r"\s*<!\[CDATA\[")
_CDATA_END = re.compile(r"\]\]>(?:<!\[CDATA\[|\s*</param>)")
_NEEDS_CDATA = re.compile(r"[<&\n]|\A\s|\s\Z")


class Minicpm5Parser(BlockParser):
    """MiniCPM 5: values with markup or several lines are in a CDATA section, where nothing is markup."""

    parser_id = "mlx_lm.minicpm5"
    markers = (("<function name=", "</function>"),)
    body_start = re.compile(r"\s*(?:\Z|[\"'][^\"'<>]*(?:\Z|[\"']\s*(?:\Z|>\s*(?:\Z|[<{]))))")

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        head = yield from text.match(_NAME)
        yield from stream_tagged_call(text, head.group(1) or head.group(2), _TAGS)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        head = _NAME.match(body)
        if head is None:
            raise Malformed("the call has no name")
        name, position = head.group(1) or head.group(2), head.end()
        at = skip_space(body, position)
        if body.startswith("{", at):
            return [ParsedCall(name, normalize_object(body[at:]))]
        arguments: dict[str, Any] = {}
        while key := _KEY.match(body, position):
            value, position = _read_value(body, key.end())
            argument = (key.group(1) or key.group(2)).strip()
            if argument in arguments:
                raise Malformed("an argument comes twice")
            arguments[argument] = offered.parse_value(name, argument, value)
        if body[position:].strip():
            raise Malformed("something stands between the arguments")
        return [ParsedCall(name, dump_json(arguments))]

    def is_whole(self, body: str, rest: str) -> bool:
        return rest.startswith("</")

    def render(self, name: str, arguments: str) -> str:
        pairs = argument_pairs(arguments)
        inside = arguments if pairs is None else "".join(_argument(key, pairs[key]) for key in pairs)
        return f'<function name="{name}">{inside}</function>'


def _read_value(text: str, position: int) -> tuple[str, int]:
    opened = _CDATA_START.match(text, position)
    if opened is None:
        end = _VALUE_END.search(text, position)
        if end is None:
            raise Unclosed("a value has no end")
        return text[position : end.start()].strip(WHITESPACE), end.end()
    parts, position = list[str](), opened.end()
    while True:  # A value that contains `]]>` is split over two CDATA sections.
        end = _CDATA_END.search(text, position)
        if end is None:
            raise Unclosed("a value has no end", hides_markers=True)
        parts.append(text[position : end.start()])
        position = end.end()
        if not end.group().endswith("["):
            return "".join(parts), position


def _argument(key: str, value: object) -> str:
    written = written_value(value)
    if _NEEDS_CDATA.search(written):
        written = f"<![CDATA[{written.replace(']]>', ']]]]><![CDATA[>')}]]>"
    return f'<param name="{key}">{written}</param>'


def _key(before: re.Match[str]) -> tuple[str, bool]:
    return (before.group(1) or before.group(2)).strip(), False


# The incremental parser refuses a CDATA section, so a call with one is parsed when complete.
_TAGS = StreamedTags(
    re.compile(rf"{_KEY.pattern}(?=\s*(?:[^\s<]|<[^!]))"),
    ValueEnd("</param>", ("<param", "</function>"), stripped=True),
    re.compile("</function>"),
    _key,
)

_TAGGED = TaggedArguments(
    head='"{}">',
    before='<param name="{}">',
    end="</param>",
    tail="</function>",
    space="",
    foreign=("<![",),
    trimmed=" \t\r\n",
)

MINICPM5 = CallFormat(
    "mlx_lm.minicpm5",
    Minicpm5Parser,
    single_trigger("<function name=", _TAGGED.alone()),
    '<function name="get_weather"><param name="city">Paris</param><param name="days">2</param></function>',
)
