"""Parsers for models without tool calls and reasoning."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.parsers.parser_events import ParserEvent, PlainText, ThoughtEvent
from greenroom.engine.parsers.thinking_parser import ThinkingParser, ThinkingStream
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


class NullThinkingStream(ThinkingStream):
    """Emits all output as the answer."""

    thought_ended = True

    def feed(self, text: str) -> list[ThoughtEvent]:
        return [PlainText(text)] if text else []

    def finish(self) -> list[ThoughtEvent]:
        return []


class NullThinkingParser(ThinkingParser):
    """Parses no reasoning."""

    parser_id = "null"

    def new_stream(self, starts_open: bool = False) -> ThinkingStream:
        return NullThinkingStream()
