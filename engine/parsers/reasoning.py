"""Reasoning between markers at the start of an output, such as `<think>…</think>`."""

from __future__ import annotations

import re
from typing import Literal

from greenroom.engine.parsers.parser import (
    WHITESPACE,
    HeldText,
    PlainText,
    ReasoningEvent,
    ReasoningParser,
    ReasoningStream,
    ReasoningText,
    marker_pattern,
)

_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)+")


class MarkedReasoningParser(ReasoningParser):
    """Parses reasoning between two markers. `dropped`: further markers without meaning for the client, which
    are dropped; `ended_by`: markers, such as those of calls, that end the reasoning and are then parsed.
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


class AnswerTagsParser(ReasoningParser):
    """Parses reasoning between two markers and drops the markers around the answer.

    The answer's start marker counts only at its start, the end marker only at its end; elsewhere they are
    text.
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
        space = self._space.take()
        return "" if self._answer_is_empty and not self._ended else space


REASONING_MARKERS = {
    "think_brackets": ("[THINK]", "[/THINK]"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "kimi_vl": ("◁think▷", "◁/think▷"),
    "granite_words": ("Here is my thought process:", "Here is my response:"),
    "apriel": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    "cohere2": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "mlx_lm.longcat_think": ("<longcat_think>", "</longcat_think>"),
    "mlx_lm.think_start": ("<|think:start|>", "<|think:end|>"),
    "mlx_lm.channel": ("<|channel>thought", "<channel|>"),
    "mlx_lm.xtml": ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
}
"""Reasoning markers by parser id.

First those of Magistral and Ministral, Seed-OSS, Kimi-VL, Granite 3.2, Apriel, Command R7B and A, and MiniMax
M3; then those that mlx-lm knows besides `<think>`, LongCat, Gemma 4 and Kimi K3 among them.
"""

COHERE_STRUCTURE = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|END_THINKING|>",
)
"""Markers around the visible answer of Cohere's models."""

_DROPPED = {
    "cohere2": COHERE_STRUCTURE,
    "apriel": ("[END FINAL RESPONSE]",),
    "mlx_lm.xtml": ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
}

_ANSWER_STARTS = {"cohere2": ("<|START_RESPONSE|>", "<|START_TEXT|>")}

_ALSO_OPENED_BY = {"seed_oss": ("<seed:think><seed:cot_budget_reflect>",)}
"""Text that Seed-OSS's template writes at a reasoning budget of 0."""


class NamedReasoningParser(MarkedReasoningParser):
    """Parses reasoning between the markers of a model family. `parser_id`: key of `REASONING_MARKERS`."""

    def __init__(self, parser_id: str) -> None:
        start, end = REASONING_MARKERS[parser_id]
        super().__init__(parser_id, start, end, _DROPPED.get(parser_id, ()))
        self.answer_starts = _ANSWER_STARTS.get(parser_id, ())
        self.also_opened_by = _ALSO_OPENED_BY.get(parser_id, ())
