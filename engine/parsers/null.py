"""Parsers for models without tool calls and reasoning."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.parsers.parser_events import ParserEvent, PlainText, ReasoningEvent
from greenroom.engine.parsers.reasoning_parser import ReasoningParser, ReasoningStream
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallParser, ToolCallStream
from greenroom.schemas.messages.messages import Tool


class NullToolStream(ToolCallStream):
    """Emits all output as text."""

    def feed(self, text: str) -> list[ParserEvent]:
        return [PlainText(text)] if text else []

    def finish(self) -> list[ParserEvent]:
        return []


class NullToolParser(ToolCallParser):
    """Parses no tool calls."""

    parser_id = "null"

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        return NullToolStream()


class NullReasoningStream(ReasoningStream):
    """Emits all output as the answer."""

    reasoning_ended = True

    def feed(self, text: str) -> list[ReasoningEvent]:
        return [PlainText(text)] if text else []

    def finish(self) -> list[ReasoningEvent]:
        return []


class NullReasoningParser(ReasoningParser):
    """Parses no reasoning."""

    parser_id = "null"

    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        return NullReasoningStream()
