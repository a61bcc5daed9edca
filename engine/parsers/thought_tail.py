"""Calls that a model writes at the end of a thought, which it then never closes."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.parsers.markers import WHITESPACE, marker_pattern
from greenroom.engine.parsers.parser_events import CallEnd, ParserEvent, PlainText
from greenroom.engine.parsers.tool_call_parser import ToolCallParser, ToolCallStream
from greenroom.schemas.messages import Tool

_MAX_CHARACTERS = 65_536
"""Of a thought, which are held back because they may be calls: then they are a thought."""

_MAX_MARKERS = 64
"""Of calls in one thought, behind which calls are looked for: a model in a loop costs no more."""


class ThoughtTail:
    """Holds back what may turn out to be calls at the end of a thought.

    That is what begins with the marker of a call, and in which nothing but calls has followed so far. Which
    text is held at the end is a function of the whole thought, wherever it was cut.

    Args:
        parser: Format of the model's calls.
        tools: What was offered.

    Attributes:
        opening: What in a thought may be the beginning of a call; text without it need not be fed where
            nothing is held back.
    """

    def __init__(self, parser: ToolCallParser, tools: Sequence[Tool]) -> None:
        self._parser = parser
        self._tools = tools
        self._starts = tuple(start for start, _ in parser.markers)
        self.opening = marker_pattern(self._starts)
        self._held = ""
        self._at = 0
        self._stream: ToolCallStream | None = None
        self._events: list[ParserEvent] = []
        self._markers = 0

    @property
    def is_holding(self) -> bool:
        """Whether something is held back."""
        return self._stream is not None

    def feed(self, text: str) -> str:
        """Return as much of the thought so far as is no call."""
        if self._stream is None:
            return self._hold(text, 0)
        self._held += text
        if self._may_be_calls(self._stream.feed(text)):
            return ""
        return self._hold_later()

    def release(self) -> str:
        """Return what is held back: it is no call, because more followed or because the text was cut."""
        held, self._held, self._stream = self._held, "", None
        return held

    def finish(self) -> tuple[str, list[ParserEvent]]:
        """Return what is left of the thought at its end, and the calls behind it."""
        thought = ""
        while self._stream is not None:
            may_be_calls = self._may_be_calls(self._stream.finish())
            if may_be_calls and any(isinstance(event, CallEnd) for event in self._events):
                self._stream = None
                return thought, [event for event in self._events if not isinstance(event, PlainText)]
            thought += self._hold_later()
        return thought, []

    def _hold_later(self) -> str:
        """Give up what is held up to the next marker in it; return that as text."""
        if self._held.startswith(self._starts, self._at):
            self._markers += 1
        return self._hold(self._held, self._at + 1)

    def _hold(self, text: str, position: int) -> str:
        """Hold back what begins with the first marker from a position on; return the text before."""
        while found := self.opening.search(text, position):
            if self._markers == _MAX_MARKERS:
                break
            self._stream, self._events = self._parser.new_stream(self._tools), []
            start = len(text[: found.start()].rstrip(WHITESPACE))
            self._held, self._at = text[start:], found.start() - start
            if self._may_be_calls(self._stream.feed(text[found.start() :])):
                return text[:start]
            self._markers += found.group() in self._starts
            position = found.start() + 1
        self._held, self._stream = "", None
        return text

    def _may_be_calls(self, events: list[ParserEvent]) -> bool:
        self._events += events
        if not self._begins_with_marker():
            return False
        texts = (event.text for event in events if isinstance(event, PlainText))
        return len(self._held) <= _MAX_CHARACTERS and not any(text.strip(WHITESPACE) for text in texts)

    def _begins_with_marker(self) -> bool:
        """Return whether what is held begins with a marker, or may yet: `[` may also begin bare calls."""
        held, at = self._held, self._at
        return any(start.startswith(held[at : at + len(start)]) for start in self._starts)
