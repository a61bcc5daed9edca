"""Incremental parsing of Gemma 4's and FunctionGemma's tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_values import (
    ValueEnd,
    add_json_string,
    add_raw_string,
    json_text,
    raw_value,
)
from greenroom.engine.parsers.values.json_calls import dump_json

_HEAD = re.compile(r"call:([^\s<>{}:]+)\s*(?=\{)")
_KEY = re.compile(r"[^\s<>{}\[\]:,\"']+(?=[\s:])")
_BARE = re.compile(r"[^\s<>{}\[\]:,\"'][^<>{}\[\],\"'\n]*(?=[<>{}\[\],\"'\n])")
_MAX_DEPTH = 100


class GemmaStream:
    """Parses the calls of a block.

    Args:
        quote: Marker on both sides of a string.
        end: Marker that closes the block.
        bare_value: Function that decodes an unquoted value.
    """

    def __init__(self, text: GrowingText, quote: str, end: str, bare_value: Callable[[str], Any]) -> None:
        self._text = text
        self._quote = quote
        self._string_end = ValueEnd(quote)
        self._end = end
        self._bare_value = bare_value

    def read(self) -> Reading[None]:
        """Parse all calls and their block's end marker."""
        text = self._text
        while not text.begun or not (yield from text.take_any([self._end])):
            if text.begun and (yield from text.peek()) == ",":
                text.at += 1
            yield from text.peek()
            head = yield from text.match(_HEAD)
            text.begin_call(head.group(1))
            yield from self._object(0)
            text.end_call()

    def _value(self, depth: int) -> Reading[None]:
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
                text.at += 1
                yield from add_json_string(text)
            case _:
                bare = yield from text.match(_BARE)
                text.add(dump_json(self._bare_value(bare.group().rstrip())))

    def _list(self, depth: int) -> Reading[None]:
        text = self._text
        yield from text.expect("[")
        text.add("[")
        before = ""
        while not (yield from text.take_any(["]"])):
            text.add(before)
            before = ", "
            yield from self._value(depth + 1)
            if (yield from text.peek()) == ",":
                text.at += 1
        text.add("]")

    def _object(self, depth: int) -> Reading[None]:
        text = self._text
        yield from text.expect("{")
        text.add("{")
        before = ""
        while not (yield from text.take_any(["}"])):
            key = yield from self._key()
            text.add(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
            before = ", "
            yield from text.expect(":")
            yield from self._value(depth + 1)
            if (yield from text.peek()) == ",":
                text.at += 1
        text.add("}")

    def _key(self) -> Reading[str]:
        text = self._text
        if (yield from text.take_any([self._quote])):
            return (yield from raw_value(text, self._string_end))
        if (yield from text.peek()) == '"':
            return (yield from json_text(text))
        return (yield from text.match(_KEY)).group()
