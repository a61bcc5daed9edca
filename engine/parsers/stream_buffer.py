"""Parsing of a tool-call block, while it is written or as a whole.

A parser is a generator that yields whenever it needs more text. It decides only on text it has read, so its
result does not depend on how the text was split. Of a whole block it never needs more.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TypeVar

from greenroom.engine.parsers.json_values import encodable
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parser import (
    LONGEST_HEAD,
    WHITESPACE,
    CallArguments,
    CallEnd,
    CallName,
    Malformed,
    ParsedCall,
    ParserEvent,
    Unclosed,
    skip_space,
)

_MAX_CUT = 256  # Limit in characters on a broken end marker

T = TypeVar("T")
IncrementalParser = Generator[None, None, T]
"""An incremental parser: yields when it needs more text, and returns its result."""


class StreamBuffer:
    """Buffer of a block's text, and of the events of the tool calls parsed from it.

    Args:
        end: Marker that closes the block; empty if its JSON value or bracket does.
        cut_end: Start of `end`; any prefix of it may end a whole block that was cut off.
        complete: True if the text is a whole block without its end marker.

    Attributes:
        text: Text whose unread part begins at `at`; the part before may be removed with the next piece.
        started: True once a call has begun, so that the block can no longer be plain text.
        in_call: True while the last call has not ended.
    """

    def __init__(self, offered: OfferedTools, text: str, end: str, *, cut_end: str, complete: bool) -> None:
        self.offered = offered
        self.text = text
        self.end = end
        self.complete = complete
        self._cut_end = cut_end
        self._stop = len(text.rstrip(WHITESPACE))
        self.at = self._removed = 0
        self.started = self.in_call = False
        self._events: list[ParserEvent] = []
        self._fragments: list[str] = []

    @property
    def position(self) -> int:
        """Number of characters parsed so far, however the text was split."""
        return self._removed + self.at

    @property
    def remaining(self) -> str:
        return self.text[self.at :]

    def grow(self, piece: str) -> None:
        self.text = self.text[self.at :] + piece
        self._removed += self.at
        self.at = 0

    def take_events(self) -> list[ParserEvent]:
        """Return the events since the last time and clear them."""
        self._flush()
        events, self._events = self._events, []
        return events

    def begin_call(self, name: str) -> None:
        """Emit the start of a call. Raises Malformed: the tool was not offered."""
        # Of a whole block, all calls are known first: one to another tool makes all of it text.
        if not self.complete and not self.offered.accepts(name):
            raise Malformed("tool not offered")
        self._events.append(CallName(name))
        self.started = self.in_call = True

    def add(self, fragment: str) -> None:
        """Emit the next piece of the arguments' JSON text."""
        if fragment:
            self._fragments.append(fragment)

    def end_call(self) -> None:
        self._flush()
        self._events.append(CallEnd())
        self.in_call = False

    def is_cut(self, literal: str, position: int) -> bool:
        """Return whether a whole block ends behind a position or with the beginning of a literal there."""
        return self._stop - position <= len(literal) and literal.startswith(self.text[position : self._stop])

    def take_to(self, end: int) -> str:
        """Return the text up to a position and move there."""
        taken = self.text[self.at : end]
        self.at = end
        return taken

    def peek(self) -> IncrementalParser[str]:
        """Skip white space and return the next character without reading it; empty at the end of the text."""
        while True:
            self.at = skip_space(self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            if self.complete:
                return ""
            yield

    def take_any(self, literals: Sequence[str]) -> IncrementalParser[str]:
        """Skip white space and read one of several literals; return an empty string if none comes next."""
        yield from self.peek()
        while True:
            rest = self.text[self.at : self.at + max(map(len, literals))]
            whole = [literal for literal in literals if rest.startswith(literal)]
            longer = [one for one in literals if len(one) > len(rest) and one.startswith(rest)]
            if self.complete or not longer:
                found = max(whole, key=len, default="")
                self.at += len(found)
                return found
            yield

    def take_end(self) -> IncrementalParser[bool]:
        """Skip white space and read the block's end; return whether it comes next."""
        if not self.complete:
            return bool(self.end) and bool((yield from self.take_any([self.end])))
        yield from self.peek()
        if not self.is_cut(self._cut_end, self.at):
            return False
        self.at = len(self.text)
        return True

    def expect(self, *literals: str, in_value: bool = False) -> IncrementalParser[None]:
        """Skip white space and read one of several literals.

        Args:
            in_value: True if the text cannot end here, but for an end marker that is part of a value.

        Raises:
            Unclosed: The text ends inside a value.
            Malformed: Other text comes next.
        """
        if not (yield from self.take_any(literals)):
            ends = in_value and self.complete and self.at == len(self.text)
            raise (Unclosed if ends else Malformed)(f"{literals[0]} expected")

    def expect_cut(self, literal: str) -> IncrementalParser[None]:
        """Skip white space and read a literal, which may be cut off or broken up at the end of a whole block.
        Raises Malformed: other text comes next.
        """
        yield from self.peek()
        if self.complete and literal.startswith("".join(self.text[self.at : self.at + _MAX_CUT].split())):
            self.at = len(self.text)
        else:
            yield from self.expect(literal)

    def find(self, *patterns: re.Pattern[str]) -> IncrementalParser[re.Match[str] | None]:
        """Read the match of the first pattern that matches; more text must not make such a match longer.

        Returns:
            The match; None if there is none in a whole block.

        Raises:
            Malformed: No pattern matches within `LONGEST_HEAD` characters.
        """
        while True:
            limit = len(self.text) if self.complete else min(len(self.text), self.at + LONGEST_HEAD)
            for pattern in patterns:
                found = pattern.match(self.text, self.at, limit)
                if found is not None:
                    self.at = found.end()
                    return found
            if self.complete:
                return None
            if limit == self.at + LONGEST_HEAD:
                raise Malformed("this is no call")
            yield

    def match(self, *patterns: re.Pattern[str]) -> IncrementalParser[re.Match[str]]:
        """Read the match of the first pattern that matches; more text must not make such a match longer.
        Raises Malformed: no pattern matches.
        """
        found = yield from self.find(*patterns)
        if found is None:
            raise Malformed("this is no call")
        return found

    def match_run(self, pattern: re.Pattern[str]) -> IncrementalParser[str]:
        """Read characters as long as a pattern matches them. Raises Malformed: the pattern does not match, or
        matches more than `LONGEST_HEAD` characters.
        """
        while True:
            limit = len(self.text) if self.complete else min(len(self.text), self.at + LONGEST_HEAD)
            found = pattern.match(self.text, self.at, limit)
            if found is not None and (self.complete or found.end() < limit):
                self.at = found.end()
                return found.group()
            if limit == self.at + LONGEST_HEAD or (found is None and self.at < len(self.text)):
                raise Malformed("this is no call")
            if self.complete:
                raise Unclosed("the text ends before a name or a value")
            yield

    def _flush(self) -> None:
        if self._fragments:
            self._events.append(CallArguments("".join(self._fragments)))
            self._fragments = []


def calls_of_block(text: StreamBuffer, reading: IncrementalParser[None]) -> list[ParsedCall]:
    """Return the calls that a parser finds in a whole block. Raises Unclosed: the text ends inside a value.
    Raises Malformed: the block holds no call, or other text besides calls.
    """
    for _ in reading:
        raise Unclosed("the text ends inside a call")
    if skip_space(text.text, text.at) < len(text.text):
        raise Malformed("something follows the calls")
    calls: list[ParsedCall] = []
    for event in text.take_events():
        match event:
            case CallName(name):
                calls.append(ParsedCall(name, ""))
            case CallArguments(fragment):
                calls[-1] = ParsedCall(calls[-1].name, calls[-1].arguments + fragment)
    if not calls:
        raise Malformed("the block is empty")
    return [ParsedCall(call.name, encodable(call.arguments)) for call in calls]
