"""Incremental parsing of tool calls written as Python."""

from __future__ import annotations

import json
import re

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_calls import stream_json_calls
from greenroom.engine.parsers.streaming.streamed_values import string_inside
from greenroom.engine.parsers.values.json_calls import dump_json
from greenroom.engine.parsers.values.json_scanner import PythonScanner
from greenroom.engine.parsers.values.python_literals import STRING_PARTS, read_literal, unescaped

_CALLED = re.compile(r"(\w[\w.:/-]*)[ \t]*\(")
_KEY = re.compile(r"([A-Za-z_][\w.-]*|\"[^\"\\]*\"|'[^'\\]*')\s*=(?=[^=])")
_BEGUN = re.compile(r"(?:\[\s*)?([^\s\[])|\[\s*\[")
_CLOSED = re.compile(r"\)")
_WORD = re.compile(r"[^\s,)\]};\"']+(?=[\s,)\]};])")
_QUOTES = ("'", '"')
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_LONG_ESCAPES = frozenset("xuU01234567")
_LONGEST_ESCAPE = 10


def stream_python_calls(text: GrowingText, end: str = "") -> Reading[None]:
    """Parse calls in a list, or one per line.

    Args:
        end: Marker that closes the block; empty if the list's bracket ends it.
    """
    lists = 0
    while (yield from text.peek()) == "[" and lists < 2:  # Some models nest the list in another list.
        text.at += 1
        lists += 1
    while True:
        character = yield from text.peek()
        if character == "]" and text.begun and lists:
            for _ in range(lists):
                yield from text.expect("]")
            if end:
                yield from text.expect(end)
            return
        if text.begun and end and not lists and (yield from text.take_any([end])):
            return
        if text.begun and character in ",;":
            text.at += 1
            continue
        called = yield from text.match(_CALLED)
        yield from _stream_arguments(text, text.offered.meant(called.group(1)))


def _stream_arguments(text: GrowingText, name: str) -> Reading[None]:
    """Parse the arguments of a call, which must be named, and its closing bracket."""
    before = "{"
    while True:
        yield from text.peek()
        found = yield from text.match(_KEY, _CLOSED)
        if not text.in_call:
            text.begin_call(name)
        if found.re is _CLOSED:
            text.add("{}" if before == "{" else "}")
            text.end_call()
            return
        key = found.group(1).strip("\"'")
        text.add(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
        before = ", "
        yield from _stream_value(text)
        if (yield from text.peek()) == ",":
            text.at += 1


def _stream_value(text: GrowingText) -> Reading[None]:
    character = yield from text.peek()
    if character in "[{(":
        yield from _add_container(text)
    elif character in _QUOTES:
        yield from _stream_strings(text)
    else:
        word = yield from text.match(_WORD)
        value, end = read_literal(word.group(), 0)
        if end < len(word.group()):
            raise Malformed("a value is no literal")
        text.add(dump_json(value))


def _add_container(text: GrowingText) -> Reading[None]:
    scanner, pieces = PythonScanner(), list[str]()
    while True:
        end = scanner.feed(text.text, text.at)
        pieces.append(text.take_to(len(text.text) if end < 0 else end))
        if end >= 0:
            text.add(dump_json(read_literal("".join(pieces), 0)[0]))
            return
        yield


def _stream_strings(text: GrowingText) -> Reading[None]:
    """Parse a string; adjacent strings are joined, as in Python."""
    text.add('"')
    while (yield from text.peek()) in _QUOTES:
        quote = text.text[text.at]
        opened = yield from text.take_any([quote * 3, quote * 2, quote])
        if len(opened) == 3:
            raise Malformed("a string of several lines")
        if len(opened) == 1:
            yield from _add_string(text, quote)
    text.add('"')


def _add_string(text: GrowingText, quote: str) -> Reading[None]:
    """Parse a string behind its opening quote; hold back an escape that may continue."""
    while True:
        end = STRING_PARTS[quote].match(text.text, text.at).end()  # type: ignore[union-attr]
        closed = text.text.startswith(quote, end)
        if not closed:
            end = _before_open_escape(text.text, text.at, end)
        text.add(string_inside(unescaped(text.take_to(end))))
        if closed:
            text.at += 1
            return
        yield


def _before_open_escape(text: str, begin: int, end: int) -> int:
    """Return the start of the last escape if it may continue, else the end."""
    starts = [found.start() for found in _ESCAPED.finditer(text, begin, end)]
    if not starts or text[starts[-1] + 1] not in _LONG_ESCAPES or end - starts[-1] >= _LONGEST_ESCAPE:
        return end
    return starts[-1]


def stream_python_or_json(text: GrowingText, end: str = "") -> Reading[None]:
    """Parse calls written as Python, or as JSON, which some models write instead."""
    yield from text.peek()
    begun = yield from text.match(_BEGUN)
    text.at = begun.start()
    yield from stream_json_calls(text, end) if begun.group(1) == "{" else stream_python_calls(text, end)
