"""Reasoning between markers at the start of an output, such as `<think>…</think>`."""

from __future__ import annotations

import re
from typing import Literal

from greenroom.engine.parsers.held_text import HeldText
from greenroom.engine.parsers.markers import WHITESPACE, marker_pattern
from greenroom.engine.parsers.parser_events import PlainText, ReasoningEvent, ReasoningText
from greenroom.engine.parsers.reasoning_parser import ReasoningParser, ReasoningStream

_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)+")


class MarkedReasoningParser(ReasoningParser):
    """Parses reasoning between two markers.

    Args:
        dropped: Further markers without meaning for the client, which are dropped.
        ended_by: Markers, such as those of calls, that end the reasoning and are then parsed.
    """

    def __init__(
        self,
        parser_id: str,
        start: str,
        end: str,
        dropped: tuple[str, ...] = (),
        ended_by: tuple[str, ...] = (),
    ) -> None:
        self.parser_id = parser_id
        self.markers = ((start, end),)
        self.closing = marker_pattern([end, *ended_by])
        self.ended_by = ended_by
        self.dropped_markers = dropped
        self.dropped = marker_pattern(dropped) if dropped else None

    def reads_outside_reasoning(self, token: str) -> bool:
        return super().reads_outside_reasoning(token) or token in self.dropped_markers

    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        return _MarkedReasoningStream(self, starts_open)


class ThinkTagParser(MarkedReasoningParser):
    """`<think>…</think>`: Qwen 3, GLM-4.5 to 4.7, DeepSeek R1 and many others."""

    def __init__(self, parser_id: str = "think_tag") -> None:
        super().__init__(parser_id, "<think>", "</think>")


class SolarOpenReasoningParser(MarkedReasoningParser):
    """Solar Open: reasoning, answer and calls of a turn are separate messages."""

    forced_end = "<|end|><|begin|>assistant"
    answer_starts = ("<|content|>", "<|begin|>assistant<|content|>")

    def __init__(self) -> None:
        frame = ("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")
        super().__init__("solar_open", "<|think|>", "<|end|>", frame)


class _MarkedReasoningStream(ReasoningStream):
    """Parses reasoning before the answer; once the answer has begun, its markers are text.

    White space around reasoning and blank lines before the answer are dropped. Consecutive pieces of
    reasoning are joined with a blank line. Unclosed reasoning lasts to the end; calls in it are not parsed
    here.
    """

    def __init__(self, parser: MarkedReasoningParser, starts_open: bool) -> None:
        self._parser = parser
        ((self._start, self._end),) = parser.markers
        self._pending = ""
        self._space_before = HeldText()
        self._padding: list[str] = []
        self._separator = ""
        self._reasoning_is_empty = True
        self._closed_before = False
        self._may_open_again = starts_open
        self._state: Literal["before", "thought", "answer"] = "thought" if starts_open else "before"
        self._final = False
        self._is_plain_reasoning = False
        self.in_reasoning = starts_open

    def feed(self, text: str) -> list[ReasoningEvent]:
        events: list[ReasoningEvent] = []
        if self._is_plain_reasoning and not self._pending and self._parser.closing.search(text) is None:
            self._add_reasoning(events, text)
            return events
        self._pending += text
        while self._advance(events):
            pass
        self._is_plain_reasoning = self._state == "thought" and not self._may_open_again
        return events

    def finish(self) -> list[ReasoningEvent]:
        self._final = True
        return self.feed(self._space_before.take() if not self._pending else "")

    def _advance(self, events: list[ReasoningEvent]) -> bool:
        if not self._pending:
            return False
        match self._state:
            case "before":
                return self._read_before()
            case "thought":
                return self._read_reasoning(events)
            case "answer":
                return self._read_answer(events)

    def _read_before(self) -> bool:
        self._pending = text = self._space_before.add_space_of(self._pending)
        if text.startswith(self._start):
            self._space_before.take()
            self._pending = text[len(self._start) :]
            self._state = "thought"
            self.in_reasoning = True
            return True
        if self._start.startswith(text) and not self._final:
            return False
        self._pending = self._space_before.take() + text
        if self._closed_before:
            blank = _BLANK_LINES.match(self._pending)
            self._pending = self._pending[blank.end() :] if blank else self._pending
            if not text:
                self._pending = ""
        self._state = "answer"
        return True

    def _read_reasoning(self, events: list[ReasoningEvent]) -> bool:
        if self._may_open_again:  # Some models repeat the start marker of their template.
            self._pending = text = self._pending.lstrip(WHITESPACE)
            if self._start.startswith(text) and text != self._start and not self._final:
                return False
            self._may_open_again = False
            if text.startswith(self._start):
                self._pending = text[len(self._start) :]
                return True
        found = self._parser.closing.search(self._pending)
        ended = found is not None and found.group() in self._parser.ended_by
        complete = ended or (found is not None and found.group() == self._end)
        cut = len(self._pending) if found is None or (self._final and not complete) else found.start()
        self._add_reasoning(events, self._pending[:cut])
        self._pending = self._pending[cut:]
        if not complete:
            return False
        if ended:
            self._state, self.in_reasoning = "answer", False
            return True
        self._pending = self._pending[len(self._end) :]
        self._state = "before"
        self.in_reasoning = False
        self._closed_before = self._reasoning_is_empty = True
        return True

    def _add_reasoning(self, events: list[ReasoningEvent], text: str) -> None:
        if self._reasoning_is_empty:
            text = text.lstrip(WHITESPACE)
        body = text.rstrip(WHITESPACE)
        if not body:
            self._padding.append(text)
            return
        if self._reasoning_is_empty:
            events.append(ReasoningText(self._separator + body))
        else:
            events.append(ReasoningText("".join(self._padding) + body if self._padding else body))
        if len(body) < len(text):
            self._padding = [text[len(body) :]]
        elif self._padding:
            self._padding = []
        self._separator = "\n\n"
        self._reasoning_is_empty = False

    def _read_answer(self, events: list[ReasoningEvent]) -> bool:
        dropped = self._parser.dropped
        if dropped is None:
            self.reasoning_ended = True
            events.append(PlainText(self._pending))
            self._pending = ""
            return False
        return self._read_dropping_markers(events, dropped)

    def _read_dropping_markers(self, events: list[ReasoningEvent], dropped: re.Pattern[str]) -> bool:
        text = self._pending
        found = dropped.search(text)
        complete = found is not None and found.group() in self._parser.dropped_markers
        cut = len(text) if found is None or (self._final and not complete) else found.start()
        if cut:
            events.append(PlainText(text[:cut]))
        self._pending = text[found.end() if found is not None and complete else cut :]
        return complete
