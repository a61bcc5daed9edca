"""Thoughts whose answer stands between markers of its own: `<think>…</think><answer>…</answer>`."""

from __future__ import annotations

from typing import Literal

from greenroom.engine.parsers.markers import WHITESPACE, marker_pattern
from greenroom.engine.parsers.parser_events import PlainText, ThoughtEvent, ThoughtText
from greenroom.engine.parsers.thinking_parser import ThinkingParser, ThinkingStream
from greenroom.engine.parsers.thoughts.think_tag import MarkedThinkingParser


class FramedAnswerParser(ThinkingParser):
    """Reads thoughts between two markers, and drops the two around the answer.

    The first counts where the answer begins, the second as the last thing of it; elsewhere they are text.

    Args:
        thought: What opens and closes a thought.
        answer: What opens and closes the answer behind it.
    """

    def __init__(self, parser_id: str, thought: tuple[str, str], answer: tuple[str, str]) -> None:
        self.parser_id = parser_id
        self.markers = (thought,)
        self.answer = answer
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
        if self._state != "before" and (text := self._answer()):
            read.append(PlainText(text))
        return read

    def _open(self) -> None:
        """Drop the first marker once it is known whether it is there."""
        text = self._pending.lstrip(WHITESPACE)
        if text.startswith(self._start):
            self._pending = text[len(self._start) :]
            self._state = "framed"
        elif self._final or not self._start.startswith(text):
            self._state = "free"

    def _answer(self) -> str:
        """Return what is known to be part of the answer; what may be its end is kept."""
        if self._state == "framed" and self._answer_is_empty:
            self._pending = self._pending.lstrip(WHITESPACE)
        if self._state == "framed" and not self._final:
            text = self._pending
            found = self._closing.search(text)
            while found is not None and text[found.end() :].strip(WHITESPACE):
                found = self._closing.search(text, found.end())
            body = (text if found is None else text[: found.start()]).rstrip(WHITESPACE)
            self._pending = text[len(body) :]
            self._answer_is_empty = self._answer_is_empty and not body
            return body
        text, self._pending = self._pending, ""
        if self._state == "framed" and text.rstrip(WHITESPACE).endswith(self._end):
            return text.rstrip(WHITESPACE).removesuffix(self._end).rstrip(WHITESPACE)
        return text
