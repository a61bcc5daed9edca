"""Reasoning before an answer that has its own markers: `<think>…</think><answer>…</answer>`."""

from __future__ import annotations

from typing import Literal

from greenroom.engine.parsers.held_text import HeldText
from greenroom.engine.parsers.markers import WHITESPACE, marker_pattern
from greenroom.engine.parsers.parser_events import PlainText, ReasoningEvent, ReasoningText
from greenroom.engine.parsers.reasoning.think_tag import MarkedReasoningParser
from greenroom.engine.parsers.reasoning_parser import ReasoningParser, ReasoningStream


class AnswerTagsParser(ReasoningParser):
    """Parses reasoning between two markers and drops the markers around the answer.

    The answer's start marker counts only at its start, the end marker only at its end; elsewhere they are
    text.

    Args:
        reasoning: Markers that open and close the reasoning.
        answer: Markers that open and close the answer.
    """

    def __init__(self, parser_id: str, reasoning: tuple[str, str], answer: tuple[str, str]) -> None:
        self.parser_id = parser_id
        self.markers = (reasoning,)
        self.answer = answer
        self.answer_starts = (answer[0],)
        self.closing = marker_pattern([answer[1]])
        self._reasoning = MarkedReasoningParser(parser_id, *reasoning)

    def reads_outside_reasoning(self, token: str) -> bool:
        return super().reads_outside_reasoning(token) or token in self.answer

    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        return _AnswerTagsStream(self, self._reasoning.new_stream(starts_open))


class _AnswerTagsStream(ReasoningStream):
    def __init__(self, parser: AnswerTagsParser, stream: ReasoningStream) -> None:
        self._start, self._end = parser.answer
        self._closing = parser.closing
        self._reasoning = stream
        self._pending = ""
        self._space = HeldText()
        self._held_end = HeldText()
        self._ended = False
        self._state: Literal["before", "framed", "free"] = "before"
        self._answer_is_empty = True
        self._final = False

    @property
    def in_reasoning(self) -> bool:  # type: ignore[override]
        return self._reasoning.in_reasoning

    @property
    def reasoning_ended(self) -> bool:  # type: ignore[override]
        return self._state == "free" and self._reasoning.reasoning_ended

    def feed(self, text: str) -> list[ReasoningEvent]:
        return self._read(self._reasoning.feed(text))

    def finish(self) -> list[ReasoningEvent]:
        rest = self._reasoning.finish()
        self._final = True
        return self._read(rest)

    def _read(self, events: list[ReasoningEvent]) -> list[ReasoningEvent]:
        read: list[ReasoningEvent] = [event for event in events if isinstance(event, ReasoningText)]
        self._pending += "".join(event.text for event in events if isinstance(event, PlainText))
        if self._state == "before" and (self._pending or self._final):
            self._open()
        text = ""
        if self._state == "framed":
            text = self._tagged_answer()
        elif self._state == "free":
            text, self._pending = self._pending, ""
        return [*read, PlainText(text)] if text else read

    def _open(self) -> None:
        """Drop the answer's start marker once its presence is known."""
        self._pending = text = self._space.add_space_of(self._pending)
        if text.startswith(self._start):
            self._pending = text[len(self._start) :]
            self._space.take()
            self._state = "framed"
        elif self._final or not self._start.startswith(text):
            self._pending = self._space.take() + text
            self._state = "free"

    def _tagged_answer(self) -> str:
        """Return the text that is certainly part of the answer; keep a possible end marker."""
        said: list[str] = []
        while self._pending:
            found = self._closing.search(self._pending)
            whole = found is not None and found.group() == self._end
            cut = len(self._pending) if found is None or (self._final and not whole) else found.start()
            self._add_text(said, self._pending[:cut])
            self._pending = self._pending[cut + len(self._end) if whole else cut :]
            if not whole:
                break
            said.append(self._held_end.take())  # An end marker that was held back did not end the answer.
            self._held_end.add(self._take_space())
            self._held_end.add(self._end)
            self._ended = True
        if self._final and not self._ended:
            said.append(self._take_space())
        return "".join(said)

    def _add_text(self, said: list[str], text: str) -> None:
        body = text.rstrip(WHITESPACE)
        if body:
            said += [self._held_end.take(), self._take_space()]
            said.append(body.lstrip(WHITESPACE) if self._answer_is_empty and not self._ended else body)
            self._answer_is_empty = self._ended = False
        self._space.add(text[len(body) :])

    def _take_space(self) -> str:
        """Return the white space behind the last emitted text; none before the answer has begun."""
        space = self._space.take()
        return "" if self._answer_is_empty and not self._ended else space
