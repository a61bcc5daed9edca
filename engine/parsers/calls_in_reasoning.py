"""Tool calls that a model writes at the end of reasoning that it never closes."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.parsers.markers import WHITESPACE, marker_pattern
from greenroom.engine.parsers.parser_events import CallEnd, ParserEvent, PlainText
from greenroom.engine.parsers.tool_call_parser import ToolCallParser, ToolCallStream
from greenroom.schemas.messages.messages import Tool

_MAX_CHARACTERS = 65_536
"""Limit on the characters held back as possible calls; longer text is reasoning."""

_MAX_MARKERS = 64
"""Limit on the call markers per reasoning that are tried, so that a looping model stays cheap."""


class CallsInReasoning:
    """Holds back text at the end of the reasoning that may turn out to be tool calls.

    That is text that starts with a call marker, followed by nothing but calls. The text held back at the end
    depends on the whole reasoning only, never on how it was split.

    Args:
        parser: Parser of the model's tool calls.
        tools: Tools offered by the request.

    Attributes:
        opening: Pattern of a possible start of a call; text without a match need not be fed while nothing is
            held back.
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
        """True while text is held back."""
        return self._stream is not None

    def feed(self, text: str) -> str:
        """Return the reasoning text that is certainly no call."""
        if self._stream is None:
            return self._hold(text, 0)
        self._held += text
        if self._may_be_calls(self._stream.feed(text)):
            return ""
        return self._hold_later()

    def release(self) -> str:
        """Return the text held back as reasoning: the answer begins, or the output was cut off."""
        held, self._held, self._stream = self._held, "", None
        return held

    def finish(self) -> tuple[str, list[ParserEvent]]:
        """Return the rest of the reasoning at its end, and the events of the calls behind it."""
        reasoning = ""
        while self._stream is not None:
            may_be_calls = self._may_be_calls(self._stream.finish())
            if may_be_calls and any(isinstance(event, CallEnd) for event in self._events):
                self._stream = None
                return reasoning, [event for event in self._events if not isinstance(event, PlainText)]
            reasoning += self._hold_later()
        return reasoning, []

    def _hold_later(self) -> str:
        """Release the held text up to the next marker in it, and return that text."""
        if self._held.startswith(self._starts, self._at):
            self._markers += 1
        return self._hold(self._held, self._at + 1)

    def _hold(self, text: str, position: int) -> str:
        """Hold back the text from the first marker after a position; return the text before it."""
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
        """Return whether held text starts with a marker or a partial one; `[` may also start bare calls."""
        held, at = self._held, self._at
        return any(start.startswith(held[at : at + len(start)]) for start in self._starts)
