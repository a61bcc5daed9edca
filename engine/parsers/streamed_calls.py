"""Parsing of tool calls as they stream: with JSON arguments, or with arguments between tags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import attrs

from greenroom.engine.parsers.json_values import ARGUMENTS, LABELS, NAMES, dump_json, normalize_object
from greenroom.engine.parsers.parser import Malformed, Unclosed
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.engine.parsers.streamed_values import (
    ValueEnd,
    add_json_object,
    add_raw_string,
    json_text,
    json_value,
    raw_value,
)

_REPEATED_MARKER = "<tool_call>"
_MAX_NESTED = 32  # Limit on calls nested under the key of a name, each of which takes a recursive call


def read_headed_call(
    text: StreamBuffer, head: re.Pattern[str], may_be_bare: bool = False
) -> IncrementalParser[None]:
    """Parse a call in which the name precedes the arguments. `head`: pattern of the text before the JSON
    object; its group is the name; `may_be_bare`: True if a whole block may hold a name without arguments.
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
        Raises Malformed: the outer object has arguments too, or too many objects are nested.
        """
        if not self._keys.isdisjoint(ARGUMENTS):
            raise Malformed("something in the call would be lost")
        if self._depth >= _MAX_NESTED:
            raise Malformed("calls are nested too deep")
        yield from _JsonCall(self._text, self._depth + 1).read()
        self._called = True


def _object_of(value: Any) -> str:
    """Return the JSON text of arguments that are missing or were written as a string. Raises Malformed: they
    are no object.
    """
    if value is None or value == "":
        return "{}"
    if not isinstance(value, str):
        raise Malformed("the arguments are not an object")
    return normalize_object(value)


_CDATA_START, _CDATA_END = "<![CDATA[", "]]>"


def _plain_key(before: re.Match[str]) -> tuple[str, bool]:
    return before["key"].strip(), before.groupdict().get("string") == "true"


@attrs.frozen
class ArgumentTags:
    """The tags around the arguments of a call.

    Args:
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
    """Parses the arguments of one call and its tail."""

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
        """Read the part that is left of the tail at the end of a whole block. Raises Malformed: other text
        comes next.
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
        """Record the tool's arguments whose tags a value holds; the call has to give them elsewhere. Raises
        Malformed: the value is no text, or holds the beginning of a further call.
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
