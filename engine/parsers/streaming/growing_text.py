"""A block of calls that is read while it is being written.

What reads it is a generator that yields where it needs more text. It decides only on what it has read, so
that its outcome does not depend on where the text was cut.
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
"""What yields whenever it needs more text, and returns what it has read."""


class GrowingText:
    """The text so far, and the calls that are handed out from it.

    Args:
        offered: What may be called.
        text: What stands there already.

    Attributes:
        text: What is not read yet begins at `at`; what stands before may be gone with the next piece.
        begun: A call was handed out, so that the block cannot turn out to be text.
        in_call: The last of them has not ended.
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
        """What nothing has read yet."""
        return self.text[self.at :]

    def grow(self, piece: str) -> None:
        """Add the next piece."""
        self.text = self.text[self.at :] + piece
        self.at = 0

    def take_events(self) -> list[ParserEvent]:
        """Return what was handed out since the last time."""
        self._flush()
        events, self._events = self._events, []
        return events

    def begin_call(self, name: str) -> None:
        """Hand out the beginning of a call.

        Raises:
            Malformed: The tool is not on offer.
        """
        if not self.offered.accepts(name):
            raise Malformed("tool not offered")
        self._events.append(CallName(name))
        self.begun = self.in_call = True

    def add(self, fragment: str) -> None:
        """Hand out the next piece of the JSON text of the arguments."""
        if fragment:
            self._fragments.append(fragment)

    def end_call(self) -> None:
        """Hand out the end of the call."""
        self._flush()
        self._events.append(CallEnd())
        self.in_call = False

    def take_to(self, end: int) -> str:
        """Read up to a position."""
        taken = self.text[self.at : end]
        self.at = end
        return taken

    def peek(self) -> Reading[str]:
        """Return the next character that is no white space, which stays."""
        while True:
            self.at = skip_space(self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            yield

    def take_any(self, literals: Sequence[str]) -> Reading[str]:
        """Read one of some literals, white space before it aside; empty if none of them comes next."""
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
        """Read a literal that has to come next, white space before it aside.

        Raises:
            Malformed: Something else comes.
        """
        if not (yield from self.take_any([literal])):
            raise Malformed(f"{literal} expected")

    def match(self, *patterns: re.Pattern[str]) -> Reading[re.Match[str]]:
        """Read what the first of some patterns matches, none of which more text makes longer.

        Raises:
            Malformed: None matches within `LONGEST_HEAD` characters.
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
