"""Parsing of constrained output that is either tool calls or an answer, told apart by its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greenroom.engine.parsers.held_text import HeldText
from greenroom.engine.parsers.markers import LONGEST_HEAD
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.parser_events import ParserEvent, PlainText
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallParser, ToolCallStream
from greenroom.schemas.messages.messages import Tool


class AnswerOrCalls(ToolCallParser):
    """Reads tool calls only when the output starts with one.

    Strings in a JSON answer may contain text that looks like a tool call.

    Args:
        calls: Parser of the family's tool-call format.
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
