"""Formatting of responses to `/api/chat` and `/api/generate`, as lines of JSON or complete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.answering.streaming.waiting_news import TellsNews
from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.encoding.timestamps import timestamp
from greenroom.http.ollama.answer_body import Kind, Piece, answer_body, ending_of
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.messages.messages import ToolCall
from greenroom.schemas.problems import Problem

NDJSON = "application/x-ndjson"


@attrs.frozen
class AnswerFormatter:
    """Formats the response to one request.

    Args:
        name: Model name from the request, which the response repeats.
    """

    kind: Kind
    name: str

    def stream(self, _model: str) -> AnswerStream:
        return AnswerStream(self.kind, self.name)

    def whole(self, _model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        [choice] = choices
        piece = Piece(choice.text, choice.reasoning, choice.tool_calls, choice.logprobs)
        return answer_body(self.kind, self.name, piece, ending_of(choice.finished, choice.dropped_messages))


_AROUND_TEXT: dict[Kind, tuple[bytes, bytes]] = {
    "chat": (b'","message":{"role":"assistant","content":', b'},"done":false}\n'),
    "generate": (b'","response":', b',"done":false}\n'),
}


class AnswerStream(TellsNews):
    """Formats one streamed response. A tool call is sent once complete, since its arguments are an object.

    Args:
        name: Model name from the request.
    """

    content_type = NDJSON

    def __init__(self, kind: Kind, name: str) -> None:
        super().__init__()
        self.finished = False
        self._kind = kind
        self._name = name
        self._call: ToolCall | None = None
        self._calls = 0
        self._dropped_messages = 0
        self._head = b'{"model":%b,"created_at":"' % json_bytes(name)
        self._before_text, self._tail = _AROUND_TEXT[kind]

    def opening(self) -> bytes:
        """Return no bytes: the first line carries the first text."""
        return b""

    def heartbeat(self) -> bytes:
        """Return a line without text, with news of the wait."""
        return self._line(Piece()).removesuffix(b"}\n") + self._news.members() + b"}\n"

    def event(self, event: InferenceEvent) -> bytes:
        """Return the lines for an event."""
        self._news.record(event)
        match event:
            case TextDelta(text, logprobs=()) if self._call is None:
                return self._text_line(text)
            case TextDelta(text, _, logprobs):
                return self._complete_call() + self._line(Piece(text, logprobs=logprobs))
            case ReasoningDelta(text):
                return self._complete_call() + self._line(Piece(reasoning=text))
            case ToolCallDelta():
                return self._add_to_call(event)
            case Finished():
                self.finished = True
                return self._complete_call() + self._line(Piece(), ending_of(event, self._dropped_messages))
            case Admitted(dropped_messages=dropped):
                self._dropped_messages = dropped
                return b""
            case Failed(problem):
                return self.failure(problem)
            case _:
                return b""

    def failure(self, problem: Problem) -> bytes:
        self.finished = True
        return json_bytes({"error": problem.detail}) + b"\n"

    def _add_to_call(self, delta: ToolCallDelta) -> bytes:
        if delta.id is None and self._call is not None:
            self._call = attrs.evolve(self._call, arguments=self._call.arguments + delta.arguments)
            return b""
        completed = self._complete_call()
        self._call = ToolCall(delta.id or "", delta.name or "", delta.arguments)
        return completed

    def _complete_call(self) -> bytes:
        if self._call is None:
            return b""
        call, self._call = self._call, None
        line = self._line(Piece(calls=(call,), first_call=self._calls))
        self._calls += 1
        return line

    def _text_line(self, text: str) -> bytes:
        """Return the same as `_line` for text alone, but faster: nearly every token needs one."""
        now = timestamp(time.time()).encode()
        return self._head + now + self._before_text + json_bytes(text) + self._tail

    def _line(self, piece: Piece, ending: dict[str, Any] | None = None) -> bytes:
        return json_bytes(answer_body(self._kind, self._name, piece, ending)) + b"\n"
