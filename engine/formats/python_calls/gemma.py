"""Tool-call formats of Gemma 4 and FunctionGemma: `call:f{key:value,…}`, with special tokens as quotes."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import attrs

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.calls.call_syntax import single_trigger
from greenroom.engine.grammar.calls.gemma_calls import gemma_calls
from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.markers import Markers
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_gemma import GemmaStream
from greenroom.engine.parsers.values.json_calls import dump_json, read_value
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.engine.parsers.values.python_literals import expect, skip_space
from greenroom.engine.parsers.values.tagged_arguments import argument_pairs

_HEAD = re.compile(r"\s*call:([^\s<>{}:]+)\s*(?=\{)")
_KEY = re.compile(r"[^\s<>{}\[\]:,\"']+")
_BARE = re.compile(r"[^\s<>{}\[\]:,\"'][^<>{}\[\],\"'\n]*")
_PYTHON_NAMES = {"None": None, "True": True, "False": False}
_MAX_DEPTH = 100
"""Limit on nesting levels of a value, each of which takes a recursive call."""


@attrs.frozen
class GemmaCallFormat:
    """The markers of one model family.

    Args:
        quote: Marker on both sides of a string; nothing is escaped in between.
        example: See `CallFormat`.
    """

    parser_id: str
    start: str
    end: str
    quote: str
    example: str


class GemmaParser(BlockParser):
    """Parses and renders the tool calls of one of these formats."""

    body_start = re.compile(r"\s*(?:\Z|c(?:\Z|a(?:\Z|l(?:\Z|l(?:\Z|:[^\s<>{}:]*\s*(?:\Z|\{))))))")

    def __init__(self, call_format: GemmaCallFormat) -> None:
        self.parser_id = call_format.parser_id
        self.markers: Markers = ((call_format.start, call_format.end),)
        self._format = call_format
        super().__init__()

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return GemmaStream(text, self._format.quote, self._format.end, _bare_value).read()

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        calls: list[ParsedCall] = []
        position = skip_space(body, 0)
        while position < len(body):
            head = _HEAD.match(body, position)
            if head is None:
                raise Malformed("the call has no name")
            arguments, position = self._object(body, head.end(), 0)
            calls.append(ParsedCall(head.group(1), dump_json(arguments)))
            position = skip_space(body, position)
            if body.startswith(",", position):
                position = skip_space(body, position + 1)
        if not calls:
            raise Malformed("the block is empty")
        return calls

    def _value(self, text: str, position: int, depth: int) -> tuple[Any, int]:
        if depth > _MAX_DEPTH:
            raise Malformed("a value is nested too deep")
        if text.startswith(self._format.quote, position):
            return self._string(text, position)
        match text[position : position + 1]:
            case "{":
                return self._object(text, position, depth)
            case "[":
                return self._list(text, position, depth)
            case '"':
                return read_value(text, position)
        bare = _BARE.match(text, position)
        if bare is None:
            raise (Unclosed if position >= len(text) else Malformed)("a value is missing")
        written = bare.group().rstrip()
        return _bare_value(written), position + len(written)

    def _string(self, text: str, position: int) -> tuple[str, int]:
        quote = self._format.quote
        start = position + len(quote)
        end = text.find(quote, start)
        if end < 0:
            raise Unclosed("a string has no end")
        return text[start:end], end + len(quote)

    def _list(self, text: str, position: int, depth: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        position = skip_space(text, position + 1)
        while not text.startswith("]", position):
            value, position = self._value(text, position, depth + 1)
            values.append(value)
            position = skip_space(text, position)
            if not text.startswith("]", position):
                position = expect(text, position, ",")
        return values, position + 1

    def _object(self, text: str, position: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        position = skip_space(text, position + 1)
        while not text.startswith("}", position):
            key, position = self._key(text, position)
            if key in members:
                raise Malformed("a key comes twice")
            members[key], position = self._value(text, expect(text, position, ":"), depth + 1)
            position = skip_space(text, position)
            if not text.startswith("}", position):
                position = expect(text, position, ",")
        return members, position + 1

    def _key(self, text: str, position: int) -> tuple[str, int]:
        if text.startswith(self._format.quote, position):
            return self._string(text, position)
        if text.startswith('"', position):
            key, end = read_value(text, position)
            return str(key), end
        bare = _KEY.match(text, position)
        if bare is None:
            raise (Unclosed if position >= len(text) else Malformed)("a key is missing")
        return bare.group(), bare.end()

    def render(self, name: str, arguments: str) -> str:
        pairs = argument_pairs(arguments)
        written = f"{{{arguments}}}" if pairs is None else self._rendered(pairs)
        return f"{self._format.start}call:{name}{written}{self._format.end}"

    def _rendered(self, value: Any) -> str:
        match value:
            case str():
                quote = self._format.quote
                return json.dumps(value, ensure_ascii=False) if quote in value else f"{quote}{value}{quote}"
            case list():
                return f"[{','.join(map(self._rendered, value))}]"
            case dict():
                members = (f"{self._rendered_key(key)}:{self._rendered(item)}" for key, item in value.items())
                return f"{{{','.join(members)}}}"
            case _:
                return dump_json(value)

    def _rendered_key(self, key: str) -> str:
        return key if _KEY.fullmatch(key) else self._rendered(key)


def _bare_value(written: str) -> Any:
    """Return an unquoted value: a number, a JSON or Python literal, or text."""
    if written in _PYTHON_NAMES:  # The official template writes null as None.
        return _PYTHON_NAMES[written]
    try:
        value = json.loads(written)
    except ValueError:
        return written
    return value if written.lower() not in ("nan", "infinity", "-infinity") else written


_FAMILIES = (
    GemmaCallFormat(
        "mlx_lm.gemma4",
        "<|tool_call>",
        "<tool_call|>",
        '<|"|>',
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>',
    ),
    GemmaCallFormat(
        "mlx_lm.function_gemma",
        "<start_function_call>",
        "<end_function_call>",
        "<escape>",
        ("<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}<end_function_call>"),
    ),
)

FORMATS = tuple(
    CallFormat(
        family.parser_id,
        partial(GemmaParser, family),
        single_trigger(family.start, gemma_calls(family.quote, family.end)),
        family.example,
    )
    for family in _FAMILIES
)
