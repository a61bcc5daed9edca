"""Incremental parsing of a tool-call block while it is written.

A parser is a generator that yields whenever it needs more text. It decides only on text it has read, so its
result does not depend on how the text was split.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TypeVar

from greenroom.engine.parsers.markers import LONGEST_HEAD, skip_space
from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.parser_events import CallArguments, CallEnd, CallName, ParserEvent
from greenroom.engine.parsers.values.offered_tools import OfferedTools

T = TypeVar("T")
Reading = Generator[None, None, T]
"""An incremental parser: yields when it needs more text, and returns its result."""


class GrowingText:
    """Buffer of a block's text, and of the events of the tool calls parsed from it.

    Args:
        offered: Tools that may be called.
        text: Initial text.

    Attributes:
        text: Text whose unread part begins at `at`; the part before may be removed with the next piece.
        begun: True once a call has begun, so that the block can no longer be plain text.
        in_call: True while the last call has not ended.
    """

    def __init__(self, offered: OfferedTools, text: str = "") -> None:
        self.offered = offered
        self.text = text
        self.at = 0
        self.begun = self.in_call = False
        self._events: list[ParserEvent] = []
        self._fragments: list[str] = []

    @property
    def unread(self) -> str:
        """Text that has not been parsed yet."""
        return self.text[self.at :]

    def grow(self, piece: str) -> None:
        """Append the next piece of text."""
        self.text = self.text[self.at :] + piece
        self.at = 0

    def take_events(self) -> list[ParserEvent]:
        """Return the events since the last time and clear them."""
        self._flush()
        events, self._events = self._events, []
        return events

    def begin_call(self, name: str) -> None:
        """Emit the start of a call.

        Raises:
            Malformed: The tool was not offered.
        """
        if not self.offered.accepts(name):
            raise Malformed("tool not offered")
        self._events.append(CallName(name))
        self.begun = self.in_call = True

    def add(self, fragment: str) -> None:
        """Emit the next piece of the arguments' JSON text."""
        if fragment:
            self._fragments.append(fragment)

    def end_call(self) -> None:
        """Emit the end of the call."""
        self._flush()
        self._events.append(CallEnd())
        self.in_call = False

    def take_to(self, end: int) -> str:
        """Return the text up to a position and move there."""
        taken = self.text[self.at : end]
        self.at = end
        return taken

    def peek(self) -> Reading[str]:
        """Skip white space and return the next character without reading it."""
        while True:
            self.at = skip_space(self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            yield

    def take_any(self, literals: Sequence[str]) -> Reading[str]:
        """Skip white space and read one of several literals; return an empty string if none comes next."""
        yield from self.peek()
        while True:
            rest = self.text[self.at : self.at + max(map(len, literals))]
            whole = [literal for literal in literals if rest.startswith(literal)]
            longer = [one for one in literals if len(one) > len(rest) and one.startswith(rest)]
            if not longer:
                found = max(whole, key=len, default="")
                self.at += len(found)
                return found
            yield

    def expect(self, literal: str) -> Reading[None]:
        """Skip white space and read a required literal.

        Raises:
            Malformed: Other text comes next.
        """
        if not (yield from self.take_any([literal])):
            raise Malformed(f"{literal} expected")

    def match(self, *patterns: re.Pattern[str]) -> Reading[re.Match[str]]:
        """Read the match of the first pattern that matches; more text must not make such a match longer.

        Raises:
            Malformed: No pattern matches within `LONGEST_HEAD` characters.
        """
        while True:
            limit = min(len(self.text), self.at + LONGEST_HEAD)
            for pattern in patterns:
                found = pattern.match(self.text, self.at, limit)
                if found is not None:
                    self.at = found.end()
                    return found
            if limit == self.at + LONGEST_HEAD:
                raise Malformed("this is no call")
            yield

    def _flush(self) -> None:
        if self._fragments:
            self._events.append(CallArguments("".join(self._fragments)))
            self._fragments = []
