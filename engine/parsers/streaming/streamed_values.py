"""Incremental conversion of call arguments to JSON text."""

from __future__ import annotations

import json
import re

import attrs

from greenroom.engine.parsers.markers import WHITESPACE, skip_space
from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.values.json_scanner import JsonScanner

_INSIDE = re.compile(r'(?:[^"\\]++|\\(?:[^u]|u[0-9a-fA-F]{4}))*+', re.DOTALL)
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


def string_inside(text: str) -> str:
    """Return a piece of a string as the inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def add_json_object(text: GrowingText) -> Reading[None]:
    """Copy a JSON object to the arguments unchanged."""
    scanner = JsonScanner()
    while True:
        end = scanner.feed(text.text, text.at)
        text.add(text.take_to(len(text.text) if end < 0 else end))
        if end >= 0:
            return
        yield


def json_scalar(text: GrowingText) -> Reading[str]:
    """Return the text of a JSON value that is neither object nor array."""
    scalar = yield from text.match(_SCALAR)
    return scalar.group()


def json_text(text: GrowingText) -> Reading[str]:
    """Return the decoded text of a JSON string.

    Raises:
        Malformed: The value is not a string.
    """
    return _decoded((yield from json_scalar(text)))


_SCALAR = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*"|[-+.\w]+(?=[^-+.\w]))')


def add_json_string(text: GrowingText) -> Reading[None]:
    """Copy a JSON string, read from behind its opening quote, with no more escapes than necessary."""
    text.add('"')
    while True:
        end = _INSIDE.match(text.text, text.at).end()  # type: ignore[union-attr]
        closed = text.text.startswith('"', end)
        half = None if closed else _HALF_PAIR.search(text.text, text.at, end)
        inside = text.take_to(half.start() if half else end)
        text.add(string_inside(_decoded(f'"{inside}"', strict=False)))
        if closed:
            text.at += 1
            text.add('"')
            return
        yield


def _decoded(written: str, strict: bool = True) -> str:
    try:
        value = json.loads(written, strict=strict)
    except ValueError as error:
        raise Malformed(str(error)) from None
    if not isinstance(value, str):
        raise Malformed("a key is no string")
    return value


@attrs.frozen
class ValueEnd:
    """The end of an unquoted value.

    Args:
        tag: End tag.
        followers: Texts that may follow the tag after white space; a tag before other text is part of the
            value. Empty if any text may follow.
        line_break: True if one line break before the tag is not part of the value.
        stripped: True if white space around the value is not part of it.
    """

    tag: str
    followers: tuple[str, ...] = ()
    line_break: bool = False
    stripped: bool = False

    def find(self, text: str, at: int) -> tuple[int, int]:
        """Return the certain end of the value and the position behind its end tag, or -1 if not found yet."""
        begin = at
        while (found := text.find(self.tag, begin)) >= 0:
            behind = found + len(self.tag)
            decided = self._is_followed(text, behind)
            if decided:
                return self._trimmed(text, at, found), behind
            if decided is None:
                return self._trimmed(text, at, found), -1
            begin = found + 1
        return self._trimmed(text, at, self._tag_begun(text, max(begin, len(text) - len(self.tag) + 1))), -1

    def _is_followed(self, text: str, behind: int) -> bool | None:
        if not self.followers:
            return True
        at = skip_space(text, behind)
        rest = text[at : at + max(map(len, self.followers))]
        if rest.startswith(self.followers):
            return True
        return None if any(follower.startswith(rest) for follower in self.followers) else False

    def _tag_begun(self, text: str, at: int) -> int:
        """Return the start of a partial end tag at the end of the text, else the text's length."""
        while at < len(text) and not self.tag.startswith(text[at:]):
            at += 1
        return at

    def _trimmed(self, text: str, at: int, end: int) -> int:
        if self.stripped:
            return at + len(text[at:end].rstrip(WHITESPACE))
        return end - 1 if self.line_break and end > at and text[end - 1] == "\n" else end


def add_raw_string(text: GrowingText, ending: ValueEnd) -> Reading[None]:
    """Copy an unquoted string as JSON, and read its end tag."""
    text.add('"')
    if ending.stripped:
        yield from text.peek()
    while True:
        end, behind = ending.find(text.text, text.at)
        text.add(string_inside(text.take_to(end)))
        if behind >= 0:
            text.at = behind
            text.add('"')
            return
        yield


def raw_value(text: GrowingText, ending: ValueEnd) -> Reading[str]:
    """Return an unquoted value, and read its end tag."""
    pieces: list[str] = []
    if ending.stripped:
        yield from text.peek()
    while True:
        end, behind = ending.find(text.text, text.at)
        pieces.append(text.take_to(end))
        if behind >= 0:
            text.at = behind
            return "".join(pieces)
        yield
