"""Parsing of constrained output that is either tool calls or an answer, told apart by its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greenroom.engine.parsers.parser import (
    LONGEST_HEAD,
    WHITESPACE,
    CallEnd,
    HeldText,
    NullToolStream,
    ParserEvent,
    PlainText,
    Release,
    ToolCallParser,
    ToolCallStream,
    marker_pattern,
)
from greenroom.schemas.messages.messages import Tool


class AnswerOrCalls(ToolCallParser):
    """Reads tool calls only when the output starts with one.

    Strings in a JSON answer may contain text that looks like a tool call.
    """

    def __init__(self, calls: ToolCallParser) -> None:
        self.parser_id = calls.parser_id
        self.markers = calls.markers
        self.frames_text = calls.frames_text
        self._calls = calls

    def reads_outside_calls(self, token: str) -> bool:
        return self._calls.reads_outside_calls(token)

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        stream = self._calls.new_stream(tools, release)
        return _AnswerOrCallsStream(stream, self._calls.begins_call) if self.markers else stream


class _AnswerOrCallsStream(ToolCallStream):
    def __init__(self, calls: ToolCallStream, begins_call: Callable[[str], bool | None]) -> None:
        self._calls = calls
        self._begins_call = begins_call
        self._space = HeldText()
        self._pending = ""
        self._chosen: ToolCallStream | None = None

    @property
    def malformed_calls(self) -> int:  # type: ignore[override]
        return self._calls.malformed_calls

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return self._chosen is not None and self._chosen.in_call

    def feed(self, text: str) -> list[ParserEvent]:
        if self._chosen is not None:
            return self._chosen.feed(text)
        self._pending += text if self._pending else self._space.add_space_of(text)
        begins = self._begins_call(self._pending[:LONGEST_HEAD])
        if begins is None and len(self._pending) < LONGEST_HEAD:
            return []
        self._chosen = self._calls if begins else NullToolStream()
        self._chosen.reasoning_is_removed = self.reasoning_is_removed
        pending, self._pending = self._space.take() + self._pending, ""
        return self._chosen.feed(pending)

    def finish(self) -> list[ParserEvent]:
        rest, self._pending = self._space.take() + self._pending, ""
        events: list[ParserEvent] = [PlainText(rest)] if rest else []
        self._calls.cut = self.cut
        return events if self._chosen is None else [*events, *self._chosen.finish()]


_MAX_CHARACTERS = 65_536  # Limit on the characters held back as possible calls; longer text is reasoning

_MAX_MARKERS = 64
"""Limit on the call markers per reasoning that are tried, so that a looping model stays cheap."""


class CallsInReasoning:
    """Holds back text at the end of the reasoning that may turn out to be tool calls.

    That is text that starts with a call marker, followed by nothing but calls. The text held back at the end
    depends on the whole reasoning only, never on how it was split.

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
