"""Tool-call formats of Gemma 4 and FunctionGemma: `call:f{key:value,…}`, with special tokens as quotes."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import attrs

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.call_bodies import gemma_calls
from greenroom.engine.grammar.call_syntax import single_trigger
from greenroom.engine.parsers.block_parser import BlockParser
from greenroom.engine.parsers.json_values import argument_pairs, dump_json
from greenroom.engine.parsers.parser import TOOL_NAME, Malformed, Markers
from greenroom.engine.parsers.python_values import unescaped
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_values import (
    ValueEnd,
    add_json_string,
    add_raw_string,
    json_text,
    raw_value,
)

_HEAD = re.compile(rf"call:({TOOL_NAME})\s*(?=\{{)")
_KEY = re.compile(r"[^\s<>{}\[\]:=,\"']+")
_BARE = re.compile(r"[^\s<>{}\[\]:,\"'][^<>{}\[\],\"'\n]*")
_LITERAL = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null|True|False|None")
_FURTHER_KEY = re.compile(r"(?<!\s)\s++([^\s:=]++)\s*+[:=]")
_QUOTED = re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_PYTHON_NAMES = {"None": None, "True": True, "False": False}
_MAX_DEPTH = 100  # Limit on nesting levels of a value, each of which takes a recursive call


@attrs.frozen
class GemmaCallFormat:
    """The markers of one model family. `quote`: marker on both sides of a string; nothing is escaped in
    between; `example`: see `CallFormat`.
    """

    parser_id: str
    start: str
    end: str
    quote: str
    example: str


class GemmaParser(BlockParser):
    body_start = re.compile(rf"\s*(?:\Z|c(?:\Z|a(?:\Z|l(?:\Z|l(?:\Z|:(?:\Z|{TOOL_NAME}\s*(?:\Z|\{{)))))))")

    def __init__(self, call_format: GemmaCallFormat) -> None:
        self.parser_id = call_format.parser_id
        self.markers: Markers = ((call_format.start, call_format.end),)
        self._format = call_format
        super().__init__()

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        return _GemmaBlock(text, self._format.quote).read()

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


class _GemmaBlock:
    """Parses the calls of a block.

    These models also write strings in quotes of JSON and Python, `=` for `:`, and no comma between values.
    """

    def __init__(self, text: StreamBuffer, quote: str) -> None:
        self._text = text
        self._quote = quote
        self._string_end = ValueEnd((quote,))
        self._keys: list[str] = []

    def read(self) -> IncrementalParser[None]:
        """Parse all calls and their block's end marker."""
        text = self._text
        while not (text.started and (yield from text.take_end())):
            yield from text.peek()
            head = yield from text.match(_HEAD)
            text.begin_call(head.group(1))
            self._keys = text.offered.argument_names(head.group(1))
            yield from self._object(0)
            text.end_call()
            yield from text.take_any([","])

    def _value(self, depth: int) -> IncrementalParser[None]:
        text = self._text
        if depth > _MAX_DEPTH:
            raise Malformed("a value is nested too deep")
        if (yield from text.take_any([self._quote])):
            yield from add_raw_string(text, self._string_end)
            return
        match (yield from text.peek()):
            case "{":
                yield from self._object(depth)
            case "[":
                yield from self._list(depth)
            case '"':
                yield from add_json_string(text)
            case "'":
                text.add(dump_json((yield from self._python_string())))
            case _:
                bare = yield from text.match_run(_BARE)
                end = self._end_without_comma(bare)
                text.at -= len(bare) - end
                text.add(dump_json(_bare_value(bare[:end].rstrip())))

    def _end_without_comma(self, bare: str) -> int:
        """Return the end of a value without quotes, before a further key if the comma is missing."""
        for found in _FURTHER_KEY.finditer(bare):
            if found.group(1) in self._keys or _LITERAL.fullmatch(bare[: found.start()]):
                return found.start()
        return len(bare)

    def _list(self, depth: int) -> IncrementalParser[None]:
        text, before = self._text, ""
        yield from text.expect("[")
        text.add("[")
        while not (yield from text.take_any(["]"])):
            text.add(before)
            before = ", "
            yield from self._value(depth + 1)
            yield from text.take_any([","])
        text.add("]")

    def _object(self, depth: int) -> IncrementalParser[None]:
        text, keys = self._text, set[str]()
        yield from text.expect("{")
        text.add("{")
        while not (yield from text.take_any(["}"])):
            key = yield from self._key()
            if key in keys:
                raise Malformed("a key comes twice")
            text.add(f"{', ' if keys else ''}{json.dumps(key, ensure_ascii=False)}: ")
            keys.add(key)
            yield from text.expect(":", "=", in_value=True)
            yield from self._value(depth + 1)
            yield from text.take_any([","])
        text.add("}")

    def _key(self) -> IncrementalParser[str]:
        text = self._text
        if (yield from text.take_any([self._quote])):
            return (yield from raw_value(text, self._string_end))
        match (yield from text.peek()):
            case '"':
                return (yield from json_text(text))
            case "'":
                return (yield from self._python_string())
        return (yield from text.match_run(_KEY))

    def _python_string(self) -> IncrementalParser[str]:
        return unescaped((yield from self._text.match(_QUOTED)).group(1))


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
