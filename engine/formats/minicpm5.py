"""Tool-call format of MiniCPM 5: `<function name="f"><param name="k">v</param></function>`, XML values."""

from __future__ import annotations

import re

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.grammar.tagged_calls import TaggedArguments
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.json_values import argument_pairs, written_value
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import ArgumentTags, TaggedCall
from greenroom.engine.parsers.streamed_values import ValueEnd

_QUOTED = r"(?:\"([^\"<>]+)\"|'([^'<>]+)')"
_NAME = re.compile(rf"{_QUOTED}\s*>")
_END = "</function>"
_KEY = re.compile(rf"<param\s+name\s*=\s*{_QUOTED}\s*>")
_NEEDS_CDATA = re.compile(r"[<&\n]|\A\s|\s\Z")


class Minicpm5Parser(BlockParser):
    """MiniCPM 5: values with markup or several lines are in a CDATA section, where nothing is markup."""

    parser_id = "mlx_lm.minicpm5"
    markers = (("<function name=", "</function>"),)
    body_start = re.compile(r"\s*(?:\Z|[\"'][^\"'<>]*(?:\Z|[\"']\s*(?:\Z|>\s*(?:\Z|[<{]))))")

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        yield from text.peek()
        head = yield from text.match(_NAME)
        yield from TaggedCall(text, head.group(1) or head.group(2), _TAGS).read()

    def is_whole(self, body: str, rest: str) -> bool:
        return rest.startswith("</")

    def render(self, name: str, arguments: str) -> str:
        pairs = argument_pairs(arguments)
        inside = arguments if pairs is None else "".join(_argument(key, pairs[key]) for key in pairs)
        return f'<function name="{name}">{inside}</function>'


def _argument(key: str, value: object) -> str:
    written = written_value(value)
    if _NEEDS_CDATA.search(written):
        written = f"<![CDATA[{written.replace(']]>', ']]]]><![CDATA[>')}]]>"
    return f'<param name="{key}">{written}</param>'


def _key(before: re.Match[str]) -> tuple[str, bool]:
    return (before.group(1) or before.group(2)).strip(), False


_TAGS = ArgumentTags(
    _KEY,
    ValueEnd(
        ("</param>",),
        ("<param", _END),
        cut=_END,
        exact_followers=re.compile(rf"<param\s+name|{_END}"),
        stripped=True,
    ),
    tail=None,
    opening=re.compile(
        r"<(?:function\s+name\s*=\s*[\"'](?P<name>[^\"'<>]+)|param\s+name\s*=\s*[\"'](?P<key>[^\"'<>]+))"
    ),
    key=_key,
    cdata=True,
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
