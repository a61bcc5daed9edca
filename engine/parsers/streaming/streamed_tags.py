"""Parsing of tool calls whose arguments are enclosed in tags, one by one, with unquoted strings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import attrs

from greenroom.engine.parsers.parsed_call import Malformed, Unclosed
from greenroom.engine.parsers.streaming.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streaming.streamed_values import (
    ValueEnd,
    add_json_object,
    add_raw_string,
    raw_value,
)
from greenroom.engine.parsers.values.json_calls import dump_json

_CDATA_START, _CDATA_END = "<![CDATA[", "]]>"


def _plain_key(before: re.Match[str]) -> tuple[str, bool]:
    return before["key"].strip(), before.groupdict().get("string") == "true"


@attrs.frozen
class ArgumentTags:
    """The tags around the arguments of a call.

    Args:
        before: Pattern of the text before a value.
        value_end: End of a value.
        tail: Pattern of the text after the last argument; None if the block's end marker is the tail.
        opening: Pattern of the start of a call (group `name`) or of an argument (group `key`), which may
            show that the value before it has no end tag.
        cut_tail: Pattern of the tail where the end of a whole block has cut off a part of it.
        key: Function that returns an argument's name and whether a tag marks the value as a string.
        json: Patterns of the text before and after a JSON object that replaces the arguments; None if the
            object needs no tags.
        cdata: True if a value may be in a CDATA section, where nothing is markup.
    """

    before: re.Pattern[str]
    value_end: ValueEnd
    tail: re.Pattern[str] | None
    opening: re.Pattern[str]
    cut_tail: re.Pattern[str] | None = None
    key: Callable[[re.Match[str]], tuple[str, bool]] = _plain_key
    json: tuple[re.Pattern[str], re.Pattern[str]] | None = None
    cdata: bool = False


class TaggedCall:
    """Parses the arguments of one call and its tail.

    Args:
        name: Name of the tool.
    """

    def __init__(self, text: StreamBuffer, name: str, tags: ArgumentTags) -> None:
        self._text = text
        self._name = name
        self._tags = tags
        self._mentioned: set[str] = set()

    def read(self) -> IncrementalParser[None]:
        """Parse the call from behind its head to the end of its tail."""
        text, tags = self._text, self._tags
        opened = (yield from text.peek()) == "{" if tags.json is None else False
        keys: set[str] = set()
        while not opened:
            found = yield from self._next_tag(keys)
            opened = found is not None and tags.json is not None and found.re is tags.json[0]
            if not text.in_call:
                text.begin_call(self._name)
            if found is None or opened:
                break
            yield from self._read_argument(found, keys)
        if opened:
            yield from self._read_json()
        else:
            if self._mentioned - keys:
                raise Malformed("a value holds another argument")
            text.add("}" if keys else "{}")
            text.end_call()

    def _next_tag(self, keys: set[str]) -> IncrementalParser[re.Match[str] | None]:
        """Return the tag of an argument or of JSON in its place; None behind the tail."""
        text, tags = self._text, self._tags
        yield from text.peek()
        starts = [tags.before, *(tags.json[:1] if tags.json is not None and not keys else ())]
        ends = [] if tags.tail is None else [tags.tail]
        if tags.tail is None and (yield from text.take_end()):
            return None
        found = yield from text.find(*starts, *ends)
        if found is None:
            self._cut_off()
            return None
        return None if found.re is tags.tail else found

    def _cut_off(self) -> None:
        """Read the part that is left of the tail at the end of a whole block.

        Raises:
            Malformed: Other text comes next.
        """
        text, pattern = self._text, self._tags.cut_tail
        if pattern is None or not pattern.fullmatch(text.text, text.at):
            raise Malformed("the call has no end")
        text.at = len(text.text)

    def _read_argument(self, tag: re.Match[str], keys: set[str]) -> IncrementalParser[None]:
        text, tags = self._text, self._tags
        key, is_string = tags.key(tag)
        if not key or key in keys:
            raise Malformed("an argument has no name, or comes twice")
        text.add(f"{', ' if keys else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        keys.add(key)
        is_string = is_string or text.offered.takes_text(self._name, key)
        in_cdata = tags.cdata and bool((yield from text.take_any([_CDATA_START])))
        if in_cdata:
            value = yield from self._read_cdata()
        elif is_string and not text.complete:
            yield from add_raw_string(text, tags.value_end)
            return
        else:
            value = yield from raw_value(text, tags.value_end)
        read = value if is_string else text.offered.parse_value(self._name, key, value)
        # A grammar decides where the values of a call end that is read while it is written.
        if text.complete and isinstance(read, str) and (not in_cdata or _CDATA_START in value):
            self._look_for_lost_ends(value, is_string or text.offered.may_be_text(self._name, key))
        text.add(dump_json(read))

    def _look_for_lost_ends(self, value: str, may_be_text: bool) -> None:
        """Record the tool's arguments whose tags a value holds; the call has to give them elsewhere.

        Raises:
            Malformed: The value is no text, or holds the beginning of a further call.
        """
        names_of, called = self._text.offered.argument_names, ""
        if not may_be_text and any(tag in value for tag in self._tags.value_end.tags):
            raise Malformed("a value has two ends")
        for found in self._tags.opening.finditer(value):
            name, key = found["name"], (found["key"] or "").strip()
            if name is not None:
                called = name if self._text.offered.accepts(name) else called
            elif not may_be_text or key in names_of(called):
                raise Malformed("a value has no end")
            elif key in names_of(self._name) or not names_of(self._name):
                self._mentioned.add(key)

    def _read_cdata(self) -> IncrementalParser[str]:
        """Parse a CDATA section; a value that contains its end is split over two sections."""
        text, parts = self._text, list[str]()
        ending = ValueEnd((_CDATA_END,), (_CDATA_START, *self._tags.value_end.tags))
        while True:
            try:
                parts.append((yield from raw_value(text, ending)))
            except Unclosed:
                raise Unclosed("a value has no end", hides_markers=True) from None
            if not (yield from text.take_any([_CDATA_START])):
                yield from text.expect(*self._tags.value_end.tags)
                return "".join(parts)

    def _read_json(self) -> IncrementalParser[None]:
        """Parse a JSON object in place of the arguments."""
        text, tags = self._text, self._tags
        yield from text.peek()
        if not text.in_call:
            text.begin_call(self._name)
        yield from add_json_object(text)
        text.end_call()
        if tags.json is not None:
            yield from text.match(tags.json[1])
        if (yield from self._next_tag(set())) is not None:
            raise Malformed("something follows the arguments")
