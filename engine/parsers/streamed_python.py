"""Parsing of tool calls written as Python."""

from __future__ import annotations

import json
import re

from greenroom.engine.parsers.json_values import PythonScanner, dump_json
from greenroom.engine.parsers.parser import TOOL_NAME, Malformed, Unclosed
from greenroom.engine.parsers.python_values import STRING_PARTS, read_literal, unescaped
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_calls import read_json_calls
from greenroom.engine.parsers.streamed_values import string_inside

_CALLED = re.compile(rf"({TOOL_NAME})[ \t]*\(")
_KEY = re.compile(r"([A-Za-z_][\w.-]*|\"[^\"\\]*\"|'[^'\\]*')\s*=(?!=)")
_STREAMED_KEY = re.compile(rf"{_KEY.pattern}(?=[^=])")
_BEGUN = re.compile(r"(?:\[\s*)?([^\s\[])|\[\s*\[")
_CLOSED = re.compile(r"\)")
_WORD = re.compile(r"[^\s,)\]};\"']+(?=[\s,)\]};])")
_QUOTES = ("'", '"')
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_LONG_ESCAPES = frozenset("xuU01234567")
_LONGEST_ESCAPE = 10


def read_python_calls(text: StreamBuffer) -> IncrementalParser[None]:
    """Parse calls in a list, one per line, or separated by commas or semicolons.

    Argument names may be Python keywords, and values may be JSON literals.
    """
    lists = 0
    while (yield from _next(text)) == "[" and lists < 2:  # Some models nest the list in another list.
        text.at += 1
        lists += 1
    while True:
        character = yield from _next(text)
        if lists and character == "]" and text.started:
            break
        if text.started and not lists and (yield from text.take_end()):
            return
        if not character:
            raise Unclosed("the list has no end")
        called = yield from text.match(_CALLED)
        yield from _read_arguments(text, text.offered.meant(called.group(1)))
        if (yield from _next(text)) in (",", ";"):
            text.at += 1
    for _ in range(lists):
        yield from _next(text)
        yield from text.expect("]", in_value=True)
    if text.end and not (yield from text.take_end()):
        raise Malformed("something follows the calls")


def read_python_or_json(text: StreamBuffer, listed: bool = False) -> IncrementalParser[None]:
    """Parse calls written as Python, or as JSON, which some models write instead."""
    character = yield from text.peek()
    if listed and character == "[":
        started = yield from text.match(_BEGUN)
        text.at, character = started.start(), started.group(1)
    yield from read_json_calls(text) if character == "{" else read_python_calls(text)


def _next(text: StreamBuffer) -> IncrementalParser[str]:
    """Skip white space and continued lines, and return the next character; empty at the end of the text."""
    while (character := (yield from text.peek())) == "\\":
        yield from text.expect("\\\n")
    return character


def _read_arguments(text: StreamBuffer, name: str) -> IncrementalParser[None]:
    """Parse the arguments of a call and its closing bracket.

    Arguments without a name, in the order of the tool's schema, are read in a whole block only.
    """
    positional = text.offered.argument_names(name)
    keys: list[str] = []
    while True:
        yield from _next(text)
        found = yield from text.find(_KEY if text.complete else _STREAMED_KEY, _CLOSED)
        if found is None and len(keys) >= len(positional):
            ends = text.at == len(text.text)
            raise (Unclosed if ends else Malformed)("an argument has no name")
        if not text.in_call:
            text.begin_call(name)
        if found is not None and found.re is _CLOSED:
            text.add("}" if keys else "{}")
            text.end_call()
            return
        key = positional[len(keys)] if found is None else found.group(1).strip("\"'")
        if key in keys:
            raise Malformed("an argument comes twice")
        text.add(f"{', ' if keys else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        keys.append(key)
        yield from _read_value(text)
        if (yield from _next(text)) != ")":
            yield from text.expect(",", in_value=True)


def _read_value(text: StreamBuffer) -> IncrementalParser[None]:
    character = yield from _next(text)
    if text.complete:
        value, text.at = read_literal(text.text, text.at)
        text.add(dump_json(value))
    elif character in "[{(":
        yield from _add_container(text)
    elif character in _QUOTES:
        yield from _add_strings(text)
    else:
        word = yield from text.match(_WORD)
        value, end = read_literal(word.group(), 0)
        if end < len(word.group()):
            raise Malformed("a value is no literal")
        text.add(dump_json(value))


def _add_container(text: StreamBuffer) -> IncrementalParser[None]:
    scanner, pieces = PythonScanner(), list[str]()
    while True:
        end = scanner.feed(text.text, text.at)
        pieces.append(text.take_to(len(text.text) if end < 0 else end))
        if end >= 0:
            text.add(dump_json(read_literal("".join(pieces), 0)[0]))
            return
        yield


def _add_strings(text: StreamBuffer) -> IncrementalParser[None]:
    text.add('"')
    while (yield from text.peek()) in _QUOTES:
        quote = text.text[text.at]
        opened = yield from text.take_any([quote * 3, quote * 2, quote])
        if len(opened) == 3:
            raise Malformed("a string of several lines")
        if len(opened) == 1:
            yield from _add_string(text, quote)
    text.add('"')


def _add_string(text: StreamBuffer, quote: str) -> IncrementalParser[None]:
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
