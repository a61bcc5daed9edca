"""Streams of answers that consist of messages: reasoning, answers and calls (gpt-oss, Muse)."""

from __future__ import annotations

from greenroom.engine.parsers.markers import WHITESPACE
from greenroom.engine.parsers.messages.harmony_messages import CHANNEL, START, HarmonyMessages, MessagePart
from greenroom.engine.parsers.parser_events import ParserEvent, PlainText, ReasoningEvent, ReasoningText
from greenroom.engine.parsers.reasoning_parser import ReasoningStream
from greenroom.engine.parsers.tool_call_parser import ToolCallStream

CALL_END = "<|call|>"
"""Marker that ends a message that is a call."""


class MessageReasoningStream(ReasoningStream):
    """Joins consecutive messages with a blank line and strips the white space around each."""

    def __init__(self, messages: HarmonyMessages) -> None:
        self._messages = messages
        self._reasoning, self._answers = _Paragraphs(), _Paragraphs()
        self.in_reasoning = messages.kind == "thought"

    def feed(self, text: str) -> list[ReasoningEvent]:
        return self._events(self._messages.feed(text))

    def finish(self) -> list[ReasoningEvent]:
        return self._events(self._messages.finish())

    def _events(self, parts: list[MessagePart]) -> list[ReasoningEvent]:
        events: list[ReasoningEvent] = []
        for part in parts:
            match part.kind:
                case "thought":
                    if text := self._reasoning.add(part):
                        events.append(ReasoningText(text))
                case "answer":
                    if text := self._answers.add(part):
                        events.append(PlainText(text))
                case "outside":
                    events.append(PlainText(part.text))
                case "call":
                    events.append(PlainText(_call_text(part)))
        self.in_reasoning = self._messages.kind == "thought"
        return events


class _Paragraphs:
    """Joins the texts of several messages into one text."""

    def __init__(self) -> None:
        self._padding: list[str] = []
        self._separator = ""
        self._is_empty = True

    def add(self, part: MessagePart) -> str:
        """Return the text that can be emitted once this part is known."""
        text = part.text.lstrip(WHITESPACE) if self._is_empty else part.text
        body = text.rstrip(WHITESPACE)
        said = ""
        if body:
            said = self._separator + body if self._is_empty else body
            if self._padding:
                said = "".join(self._padding) + said
                self._padding = []
            self._is_empty = False
        if len(body) < len(text):
            self._padding.append(text[len(body) :])
        if part.ends:
            self._separator = self._separator if self._is_empty else "\n\n"
            self._padding, self._is_empty = [], True
        return said


def _call_text(part: MessagePart) -> str:
    """Return a part of a call as the model wrote it, with the markers that its parser needs."""
    role = "" if not part.header or part.header.startswith((START, CHANNEL)) else f"{START}assistant"
    return f"{role}{part.header}{part.text}{CALL_END if part.ends else ''}"


class MessageToolStream(ToolCallStream):
    """Parses tool calls and drops reasoning that no reasoning parser has removed."""

    def __init__(self, calls: ToolCallStream, messages: HarmonyMessages) -> None:
        self._raw_messages = messages
        self._messages = MessageReasoningStream(messages)
        self._calls = calls

    @property
    def malformed_calls(self) -> int:  # type: ignore[override]
        return self._calls.malformed_calls

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return self._calls.in_call

    def feed(self, text: str) -> list[ParserEvent]:
        if self.reasoning_is_removed:
            self._raw_messages.expect_no_header()
        return self._read(self._messages.feed(text))

    def finish(self) -> list[ParserEvent]:
        self._calls.cut = self.cut
        return [*self._read(self._messages.finish()), *self._calls.finish()]

    def _read(self, events: list[ReasoningEvent]) -> list[ParserEvent]:
        texts = [event.text for event in events if isinstance(event, PlainText)]
        return self._calls.feed("".join(texts)) if texts else []
