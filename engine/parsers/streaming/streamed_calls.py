"""Incremental parsing of tool calls with JSON arguments."""

from __future__ import annotations

import re

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_values import add_json_object, json_scalar, json_text
from greenroom.engine.parsers.values.json_calls import ARGUMENTS, LABELS, NAMES


def stream_headed_call(text: GrowingText, head: re.Pattern[str], end: str = "") -> Reading[None]:
    """Parse a call in which the name precedes the arguments.

    Args:
        head: Pattern of the text before the JSON object; its group is the name.
        end: Text after the object; empty if the object ends the block.
    """
    found = yield from text.match(head)
    if end and end in found.group():
        raise Malformed("the call has no arguments")
    text.begin_call(found.group(1))
    yield from add_json_object(text)
    text.end_call()
    if end:
        yield from text.expect(end)


def stream_headed_section(
    text: GrowingText, head: re.Pattern[str], tail: re.Pattern[str], end: str
) -> Reading[None]:
    """Parse calls with a head and a tail, one after the other, up to the section's end."""
    while not (yield from text.take_any([end])):
        found = yield from text.match(head)
        text.begin_call(found.group(1))
        yield from add_json_object(text)
        text.end_call()
        yield from text.match(tail)


def stream_json_calls(text: GrowingText, end: str = "", keyed: bool = False) -> Reading[None]:
    """Parse calls that are JSON objects: one, several in a row, or an array of them.

    Args:
        end: Marker that closes the block; empty if its JSON value ends it.
        keyed: True if an object's only key is the tool's name.
    """
    listed = (yield from text.peek()) == "["
    if listed:
        text.at += 1
    while True:
        character = yield from text.peek()
        if character == "{":
            text.at += 1
            yield from _stream_object(text, keyed)
            if not (listed or end):
                return
        elif listed and character == "]":
            text.at += 1
            if end:
                yield from text.expect(end)
            return
        elif text.begun and end and (yield from text.take_any([end])):
            return
        elif text.begun and character in ",;":
            text.at += 1
        else:
            raise Malformed("this is no call")


def _stream_object(text: GrowingText, keyed: bool) -> Reading[None]:
    """Parse a call behind its opening brace; its name must precede its arguments."""
    name, called = "", False
    while True:
        character = yield from text.peek()
        if character in "},":
            text.at += 1
            if character == "}":
                break
            continue
        key = yield from json_text(text)
        yield from text.expect(":")
        character = yield from text.peek()
        if keyed:
            name = key
        if key in NAMES and character == '"' and not name:
            name = yield from json_text(text)
        elif (keyed or key in ARGUMENTS) and name and character == "{" and not called:
            text.begin_call(name)
            yield from add_json_object(text)
            text.end_call()
            called = True
        elif key in LABELS and character not in "{[":
            yield from json_scalar(text)
        else:
            raise Malformed("this is no call that can be read while it is written")
    if not called:
        raise Malformed("the call has no arguments")


def stream_named_or_json(text: GrowingText, head: re.Pattern[str]) -> Reading[None]:
    """Parse a call headed by its name, or calls that are JSON."""
    if (yield from text.peek()) in "[{":
        yield from stream_json_calls(text)
    else:
        yield from stream_headed_call(text, head)
