"""Incremental conversion of call arguments to JSON text."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs

from greenroom.engine.parsers.json_values import JsonScanner, normalize_object, read_value
from greenroom.engine.parsers.parser import WHITESPACE, Malformed, Unclosed, skip_space
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer

_INSIDE = re.compile(r'(?:[^"\\]++|\\(?:[^u]|u[0-9a-fA-F]{4}))*+', re.DOTALL)
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


def string_inside(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def add_json_object(text: StreamBuffer) -> IncrementalParser[None]:
    """Copy a JSON object to the arguments, of a block that is being written unchanged. Raises Malformed:
    another value comes next.
    """
    if (yield from text.peek()) != "{":
        raise Malformed("the arguments are not an object")
    if text.complete:
        written, _ = yield from json_value(text)
        text.add(normalize_object(written))
        return
    scanner = JsonScanner()
    while True:
        end = scanner.feed(text.text, text.at)
        text.add(text.take_to(len(text.text) if end < 0 else end))
        if end >= 0:
            return
        yield


def json_value(text: StreamBuffer) -> IncrementalParser[tuple[str, Any]]:
    """Return the JSON text of the next value, and the value; wait for all of it. Raises Unclosed: the text
    ends inside a string. Raises Malformed: the text is not JSON.
    """
    character = yield from text.peek()
    if text.complete:
        value, end = read_value(text.text, text.at)
        return text.take_to(end), value
    if character not in "{[":
        written = (yield from text.match(_SCALAR)).group()
    else:
        scanner, pieces, end = JsonScanner(), list[str](), -1
        while end < 0:
            end = scanner.feed(text.text, text.at)
            pieces.append(text.take_to(len(text.text) if end < 0 else end))
            if end < 0:
                yield
        written = "".join(pieces)
    value, end = read_value(written, 0)
    if end < len(written):
        raise Malformed("a value is not JSON")
    return written, value


def json_text(text: StreamBuffer) -> IncrementalParser[str]:
    """Return the decoded text of a JSON string. Raises Unclosed: the text ends inside the string. Raises
    Malformed: the value is not a string.
    """
    _, value = yield from json_value(text)
    if not isinstance(value, str):
        raise Malformed("a key is no string")
    return value


_SCALAR = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*"|[-+.\w]+(?=[^-+.\w]))', re.DOTALL)


def add_json_string(text: StreamBuffer) -> IncrementalParser[None]:
    """Copy a JSON string with no more escapes than necessary."""
    if text.complete:
        text.add(json.dumps((yield from json_text(text)), ensure_ascii=False))
        return
    yield from text.expect('"')
    text.add('"')
    while True:
        end = _INSIDE.match(text.text, text.at).end()  # type: ignore[union-attr]
        closed = text.text.startswith('"', end)
        half = None if closed else _HALF_PAIR.search(text.text, text.at, end)
        inside = text.take_to(half.start() if half else end)
        text.add(string_inside(_decoded(f'"{inside}"')))
        if closed:
            text.at += 1
            text.add('"')
            return
        yield


def _decoded(written: str) -> str:
    try:
        return str(json.loads(written, strict=False))
    except ValueError as error:
        raise Malformed(str(error)) from None


@attrs.frozen
class ValueEnd:
    """The end of an unquoted value.

    Args:
        followers: Texts that may follow the tag after white space; a tag before other text is part of the
            value. Empty if any text may follow.
        exact_followers: Pattern of the followers with their attributes, which decides in a whole block.
        cut: Follower that the end of a whole block may have cut off.
        line_break: True if one line break at each end of the value is not part of it.
        stripped: True if white space around the value is not part of it.
    """

    tags: tuple[str, ...]
    followers: tuple[str, ...] = ()
    exact_followers: re.Pattern[str] | None = None
    cut: str = ""
    line_break: bool = False
    stripped: bool = False
    _tag: re.Pattern[str] = attrs.field(init=False)

    @_tag.default
    def _compile_tags(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.tags)))

    def find(self, text: StreamBuffer) -> tuple[int, int]:
        """Return the certain end of the value and the position behind its end tag, or -1 if not found yet.
        Raises Unclosed: the text ends inside the value.
        """
        written, at = text.text, text.at
        begin = at
        while found := self._tag.search(written, begin):
            start, behind = found.span()
            decided = self._is_followed(text, behind)
            if decided:
                return self._trimmed(written, at, start), behind
            if decided is None:
                return self._trimmed(written, at, start), -1
            begin = start + 1
        if text.complete:
            raise Unclosed("a value has no end")
        longest = max(map(len, self.tags))
        return self._trimmed(
            written, at, self._tag_begun(written, max(begin, len(written) - longest + 1))
        ), -1

    def _is_followed(self, text: StreamBuffer, behind: int) -> bool | None:
        if not self.followers:
            return True
        at = skip_space(text.text, behind)
        if text.complete and text.is_cut(self.cut, at):
            return True
        if text.complete and self.exact_followers is not None:
            return self.exact_followers.match(text.text, at) is not None
        if text.complete or text.text.startswith(self.followers, at):
            return text.text.startswith(self.followers, at)
        rest = text.text[at : at + max(map(len, self.followers))]
        return None if any(follower.startswith(rest) for follower in self.followers) else False

    def _tag_begun(self, text: str, at: int) -> int:
        while at < len(text) and not any(tag.startswith(text[at:]) for tag in self.tags):
            at += 1
        return at

    def _trimmed(self, text: str, at: int, end: int) -> int:
        if self.stripped:
            return at + len(text[at:end].rstrip(WHITESPACE))
        return end - 1 if self.line_break and end > at and text[end - 1] == "\n" else end


def add_raw_string(text: StreamBuffer, ending: ValueEnd) -> IncrementalParser[None]:
    """Copy an unquoted string as JSON, and read its end tag."""
    text.add('"')
    yield from _begin_value(text, ending)
    while True:
        end, behind = ending.find(text)
        text.add(string_inside(text.take_to(end)))
        if behind >= 0:
            text.at = behind
            text.add('"')
            return
        yield


def raw_value(text: StreamBuffer, ending: ValueEnd) -> IncrementalParser[str]:
    """Return an unquoted value, and read its end tag. Raises Unclosed: the text ends inside the value."""
    pieces: list[str] = []
    yield from _begin_value(text, ending)
    while True:
        end, behind = ending.find(text)
        pieces.append(text.take_to(end))
        if behind >= 0:
            text.at = behind
            return "".join(pieces)
        yield


def _begin_value(text: StreamBuffer, ending: ValueEnd) -> IncrementalParser[None]:
    """Skip what stands before a value and is not part of it."""
    if ending.stripped:
        yield from text.peek()
    elif ending.line_break:
        while text.at == len(text.text) and not text.complete:
            yield
        text.at += text.text.startswith("\n", text.at)
