"""Parsing of tool calls with JSON arguments."""

from __future__ import annotations

import re
from typing import Any

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.streaming.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streaming.streamed_values import add_json_object, json_text, json_value
from greenroom.engine.parsers.values.json_calls import ARGUMENTS, LABELS, NAMES, normalize_object

_REPEATED_MARKER = "<tool_call>"
_MAX_NESTED = 32
"""Limit on calls nested under the key of a name, each of which takes a recursive call."""


def read_headed_call(
    text: StreamBuffer, head: re.Pattern[str], may_be_bare: bool = False
) -> IncrementalParser[None]:
    """Parse a call in which the name precedes the arguments.

    Args:
        head: Pattern of the text before the JSON object; its group is the name.
        may_be_bare: True if a whole block may hold a name without arguments.
    """
    found = yield from text.match(head)
    character = yield from text.peek()
    if (text.end and text.end in found.group()) or not (character == "{" or (may_be_bare and not character)):
        raise Malformed("the call has no arguments")
    text.begin_call(found.group(1))
    if character:
        yield from add_json_object(text)
    else:
        text.add("{}")
    text.end_call()
    if text.end and not (yield from text.take_end()):
        raise Malformed("something follows the arguments")


def read_headed_section(text: StreamBuffer, head: re.Pattern[str], tail: str) -> IncrementalParser[None]:
    """Parse calls with a head and a tail, one after the other, up to the section's end."""
    while not (text.started and (yield from text.take_end())):
        yield from text.peek()
        found = yield from text.match(head)
        text.begin_call(found.group(1))
        yield from add_json_object(text)
        text.end_call()
        for part in tail.split():
            yield from text.expect_cut(part)


def read_named_or_json(text: StreamBuffer, head: re.Pattern[str]) -> IncrementalParser[None]:
    """Parse a call headed by its name, or calls that are JSON."""
    if (yield from text.peek()) in ("[", "{"):
        yield from read_json_calls(text)
    else:
        yield from read_headed_call(text, head)


def read_json_calls(text: StreamBuffer, keyed: bool = False) -> IncrementalParser[None]:
    """Parse calls that are JSON objects: one, several in a row, or an array of them.

    Around the objects, brackets, commas and Llama's semicolons are skipped, as are the extra brace that small
    models often add and a repeated marker.

    Args:
        keyed: True if an object's only key is the tool's name.
    """
    depth, extra_brace = 0, text.position
    while True:
        character = yield from text.peek()
        if character == "{":
            text.at += 1
            yield from (_read_keyed_object(text) if keyed else _JsonCall(text).read())
            extra_brace = text.position
            if not (depth or text.end or text.complete):
                return
        elif text.started and (yield from text.take_end()):
            return
        elif character in ("[", "]", ",", ";") or (character == "}" and text.position == extra_brace):
            text.at += 1
            depth += {"[": 1, "]": -1}.get(character, 0)
            if character == "]" and not (depth or text.end or text.complete):
                return
        elif not (yield from text.take_any([_REPEATED_MARKER])):
            raise Malformed("this is no call")


def _read_keyed_object(text: StreamBuffer) -> IncrementalParser[None]:
    """Parse a call behind its opening brace, whose only key is the tool's name."""
    name = yield from json_text(text)
    yield from text.expect(":")
    if (yield from text.peek()) == "{":
        text.begin_call(name)
        yield from add_json_object(text)
    else:
        arguments = normalize_object((yield from json_text(text)))
        text.begin_call(name)
        text.add(arguments)
    text.end_call()
    yield from text.take_any([","])
    yield from text.expect("}")


class _JsonCall:
    """Parses one call behind its opening brace.

    Arguments that follow the name are copied while they are written; others wait for the name.

    Args:
        depth: Number of calls around this one.
    """

    def __init__(self, text: StreamBuffer, depth: int = 0) -> None:
        self._text = text
        self._depth = depth
        self._keys: set[str] = set()
        self._name = self._arguments = ""
        self._called = False

    def read(self) -> IncrementalParser[None]:
        """Parse the members up to the closing brace, which may be missing behind complete arguments."""
        text = self._text
        while not (yield from text.take_any(["}"])):
            key = yield from json_text(text)
            yield from text.expect(":")
            self._count(key)
            yield from self._read_member(key)
            if not self._keys.isdisjoint(ARGUMENTS) and not (yield from text.peek()):
                break
            if not (yield from text.take_any([","])) and (yield from text.peek()) != "}":
                raise Malformed("a comma is missing")
        if self._called:
            return
        if not self._name:
            raise Malformed("the call has no name")
        text.begin_call(self._name)
        text.add(self._arguments or "{}")
        text.end_call()

    def _count(self, key: str) -> None:
        """Record a key; raise Malformed for unknown keys and for a second name or second arguments."""
        group = next((keys for keys in (NAMES, ARGUMENTS) if key in keys), (key,))
        unknown = key not in (*NAMES, *ARGUMENTS, *LABELS)
        if unknown or not self._keys.isdisjoint(group) or (self._called and key in ARGUMENTS):
            raise Malformed("something in the call would be lost")
        self._keys.add(key)

    def _read_member(self, key: str) -> IncrementalParser[None]:
        text, character = self._text, (yield from self._text.peek())
        if key in NAMES and character == "{":
            text.at += 1
            yield from self._read_nested()
        elif key in NAMES:
            self._name = yield from json_text(text)
        elif key in LABELS:
            yield from json_value(text)
        elif self._name and character == "{":
            text.begin_call(self._name)
            yield from add_json_object(text)
            text.end_call()
            self._called = True
        else:
            written, value = yield from json_value(text)
            self._arguments = normalize_object(written) if isinstance(value, dict) else _object_of(value)

    def _read_nested(self) -> IncrementalParser[None]:
        """Parse a whole call that is the value of a name key: `{"function": {"name": …, "arguments": …}}`.

        Raises:
            Malformed: The outer object has arguments too, or too many objects are nested.
        """
        if not self._keys.isdisjoint(ARGUMENTS):
            raise Malformed("something in the call would be lost")
        if self._depth >= _MAX_NESTED:
            raise Malformed("calls are nested too deep")
        yield from _JsonCall(self._text, self._depth + 1).read()
        self._called = True


def _object_of(value: Any) -> str:
    """Return the JSON text of arguments that are missing or were written as a string.

    Raises:
        Malformed: They are no object.
    """
    if value is None or value == "":
        return "{}"
    if not isinstance(value, str):
        raise Malformed("the arguments are not an object")
    return normalize_object(value)
