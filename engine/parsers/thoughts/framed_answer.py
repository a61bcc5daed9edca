"""Reasoning before an answer that has its own markers: `<think>…</think><answer>…</answer>`."""

from __future__ import annotations

from typing import Literal

from greenroom.engine.parsers.held_text import HeldText
from greenroom.engine.parsers.markers import WHITESPACE, marker_pattern
from greenroom.engine.parsers.parser_events import PlainText, ThoughtEvent, ThoughtText
from greenroom.engine.parsers.thinking_parser import ThinkingParser, ThinkingStream
from greenroom.engine.parsers.thoughts.think_tag import MarkedThinkingParser


class FramedAnswerParser(ThinkingParser):
    """Parses reasoning between two markers and drops the markers around the answer.

    The answer's start marker counts only at its start, the end marker only at its end; elsewhere they are
    text.

    Args:
        thought: Markers that open and close the reasoning.
        answer: Markers that open and close the answer.
    """

    def __init__(self, parser_id: str, thought: tuple[str, str], answer: tuple[str, str]) -> None:
        self.parser_id = parser_id
        self.markers = (thought,)
        self.answer = answer
        self.answer_starts = (answer[0],)
        self.closing = marker_pattern([answer[1]])
        self._thoughts = MarkedThinkingParser(parser_id, *thought)

    def reads_outside_thoughts(self, token: str) -> bool:
        return super().reads_outside_thoughts(token) or token in self.answer

    def new_stream(self, starts_open: bool = False) -> ThinkingStream:
        return _FramedAnswerStream(self, self._thoughts.new_stream(starts_open))


class _FramedAnswerStream(ThinkingStream):
    def __init__(self, parser: FramedAnswerParser, thoughts: ThinkingStream) -> None:
        self._start, self._end = parser.answer
        self._closing = parser.closing
        self._thoughts = thoughts
        self._pending = ""
        self._space = HeldText()
        self._held_end = HeldText()
        self._ended = False
        self._state: Literal["before", "framed", "free"] = "before"
        self._answer_is_empty = True
        self._final = False

    @property
    def in_thought(self) -> bool:  # type: ignore[override]
        return self._thoughts.in_thought

    @property
    def thought_ended(self) -> bool:  # type: ignore[override]
        return self._state == "free" and self._thoughts.thought_ended

    def feed(self, text: str) -> list[ThoughtEvent]:
        return self._read(self._thoughts.feed(text))

    def finish(self) -> list[ThoughtEvent]:
        rest = self._thoughts.finish()
        self._final = True
        return self._read(rest)

    def _read(self, events: list[ThoughtEvent]) -> list[ThoughtEvent]:
        read: list[ThoughtEvent] = [event for event in events if isinstance(event, ThoughtText)]
        self._pending += "".join(event.text for event in events if isinstance(event, PlainText))
        if self._state == "before" and (self._pending or self._final):
            self._open()
        text = ""
        if self._state == "framed":
            text = self._framed_answer()
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

    def _framed_answer(self) -> str:
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
