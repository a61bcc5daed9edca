"""Incremental parsing of tool calls whose arguments are enclosed in tags, one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import attrs

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_values import (
    ValueEnd,
    add_json_object,
    add_raw_string,
    raw_value,
)
from greenroom.engine.parsers.values.json_calls import dump_json


def _plain_key(before: re.Match[str]) -> tuple[str, bool]:
    return before["key"].strip(), before.groupdict().get("string") == "true"


@attrs.frozen
class StreamedTags:
    """The tags around the arguments of a call.

    Args:
        before: Pattern of the text before a value.
        value_end: End of a value.
        tail: Pattern of the text after the last argument.
        key: Function that returns an argument's name and whether a tag marks the value as a string.
        json: Patterns of the text before and after a JSON object that replaces the arguments; None if there
            is no such form.
    """

    before: re.Pattern[str]
    value_end: ValueEnd
    tail: re.Pattern[str]
    key: Callable[[re.Match[str]], tuple[str, bool]] = _plain_key
    json: tuple[re.Pattern[str], re.Pattern[str]] | None = None


def stream_tagged_call(text: GrowingText, name: str, tags: StreamedTags) -> Reading[None]:
    """Parse the arguments of a call and its tail."""
    if tags.json is None and (yield from text.peek()) == "{":
        text.begin_call(name)
        yield from add_json_object(text)
        text.end_call()
        yield from text.match(tags.tail)
        return
    choices = (tags.before, tags.tail, *(tags.json or ())[:1])
    before = "{"
    while True:
        yield from text.peek()
        found = yield from text.match(*choices)
        if not text.in_call:
            text.begin_call(name)
        if found.re is not tags.before:
            break
        key, is_string = tags.key(found)
        if not key:
            raise Malformed("an argument has no name")
        text.add(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
        before = ", "
        if is_string or text.offered.takes_text(name, key):
            yield from add_raw_string(text, tags.value_end)
        else:
            value = yield from raw_value(text, tags.value_end)
            text.add(dump_json(text.offered.parse_value(name, key, value)))
    if tags.json is not None and found.re is tags.json[0]:
        yield from text.peek()
        yield from add_json_object(text)
        text.end_call()
        yield from text.match(tags.json[1])
        yield from text.match(tags.tail)
        return
    text.add("{}" if before == "{" else "}")
    text.end_call()
