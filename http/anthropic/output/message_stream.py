"""Server-sent events of a streamed message."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.http.answering.reasoning_signature import ReasoningSigner
from greenroom.http.answering.streaming.waiting_news import TellsNews
from greenroom.http.anthropic.output.answer_blocks import text_block, tool_use_id
from greenroom.http.anthropic.output.errors import error_members
from greenroom.http.anthropic.output.stop_reason import stop_reason
from greenroom.http.anthropic.output.usage import usage_body, usage_members
from greenroom.http.encoding.json_encoding import json_ascii, json_string
from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS
from greenroom.schemas.anthropic.answers import MessageBody
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.problems import Problem

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_TAIL = b"}}\n\n"


class MessageStream(TellsNews):
    """Formats one streamed response.

    The first event reports the cached part of the prompt, so it waits until that is known or a heartbeat is
    due. The constant part of a block's deltas is encoded once per block.

    Args:
        message: Initial message, without its usage.
        max_tokens: Limit on generated tokens, set by the client.
        hides_reasoning: True to send reasoning without its text.
        asked_to_cache: True if the client set `cache_control` anywhere.
    """

    content_type = SERVER_SENT_EVENTS

    def __init__(
        self,
        message: MessageBody,
        request_id: str,
        *,
        max_tokens: int,
        hides_reasoning: bool,
        asked_to_cache: bool = False,
    ) -> None:
        super().__init__()
        self.finished = False
        self._message = message
        self._request_id = request_id
        self._max_tokens = max_tokens
        self._hides_reasoning = hides_reasoning
        self._asked_to_cache = asked_to_cache
        self._prompt: int | None = None
        self._started = False
        self._blocks = 0
        self._open: str | None = None
        self._delta_head = b""
        self._signer = ReasoningSigner(hides_reasoning)
        self._white_space = ""

    def opening(self) -> bytes:
        """Return no bytes: the stream begins with the length of the prompt."""
        return b""

    def heartbeat(self) -> bytes:
        """Return a ping with news of the wait, or behind the first event if the prompt's length is known."""
        waits = self._prompt is None or self._news.waits
        ping = PING.removesuffix(b"}\n\n") + self._news.members() + b"}\n\n"
        return ping if waits else self._start() + ping

    def failure(self, problem: Problem) -> bytes:
        self.finished = True
        return b"event: error\ndata: %b\n\n" % json_ascii(error_members(problem, self._request_id))

    def event(self, event: InferenceEvent) -> bytes:
        """Return the server-sent events for an inference event."""
        self._news.record(event)
        match event:
            case TextDelta(text):
                return self._text(text)
            case ReasoningDelta(text):
                return self._reasoning(text)
            case ToolCallDelta():
                return self._tool_call(event)
            case Admitted(prompt_tokens):
                self._prompt = prompt_tokens
                return b""
            case PromptProgress(total=total, cached=cached):
                self._prompt = total
                return self._start(cached)
            case Finished():
                return self._finish(event)
            case Failed(problem):
                return self.failure(problem)
            case _:
                return b""

    def _start(self, cached: int = 0) -> bytes:
        if self._started:
            return b""
        self._started = True
        # Clients expect at least one output token here; the last event has the true count.
        usage = usage_body(Usage(self._prompt or 0, 1, cached))
        message = message_members(attrs.evolve(self._message, usage=usage))
        return _event("message_start", {"message": message})

    def _text(self, text: str) -> bytes:
        if self._open != "text":
            text = self._white_space + text
            if not text.strip():
                self._white_space = text
                return b""
            return self._begin("text", text_block(""), b'"text_delta","text":') + self._delta(text)
        return self._delta(text)

    def _reasoning(self, text: str) -> bytes:
        begun = b""
        if self._open != "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            begun = self._begin("thinking", empty, b'"thinking_delta","thinking":')
            self._signer = ReasoningSigner(self._hides_reasoning)
        self._white_space = ""
        self._signer.add(text)
        return begun if self._hides_reasoning else begun + self._delta(text)

    def _tool_call(self, event: ToolCallDelta) -> bytes:
        begun = b""
        if event.id is not None:
            block = {"type": "tool_use", "id": tool_use_id(event.id), "name": event.name or "", "input": {}}
            begun = self._begin("tool_use", block, b'"input_json_delta","partial_json":')
        return begun + self._delta(event.arguments) if event.arguments else begun

    def _begin(self, kind: str, block: dict[str, Any], delta: bytes) -> bytes:
        ended = self._start() + self._end_block()
        index = self._blocks
        self._open, self._white_space = kind, ""
        self._delta_head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b'
            % (index, delta)
        )
        return ended + _event("content_block_start", {"index": index, "content_block": block})

    def _delta(self, text: str) -> bytes:
        return self._delta_head + json_string(text) + _TAIL

    def _end_block(self) -> bytes:
        if self._open is None:
            return b""
        index, ended = self._blocks, b""
        if self._open == "thinking":
            delta = {"type": "signature_delta", "signature": self._signer.signature()}
            ended = _event("content_block_delta", {"index": index, "delta": delta})
        self._open = None
        self._blocks += 1
        return ended + _event("content_block_stop", {"index": index})

    def _finish(self, event: Finished) -> bytes:
        self.finished = True
        self._prompt = event.usage.prompt
        begun = self._start(event.usage.cached)
        if not self._blocks and self._open is None:
            # Some clients treat a response without any block as lost.
            begun += self._begin("text", text_block(""), b'"text_delta","text":')
        reason, sequence = stop_reason(event, self._max_tokens)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        usage = usage_members(event, asked_to_cache=self._asked_to_cache)
        return begun + self._end_block() + _event("message_delta", {"delta": delta, "usage": usage}) + _STOP


def message_members(message: MessageBody) -> dict[str, Any]:
    """Return a message as a JSON-like object."""
    members = attrs.asdict(message)
    if message.diagnostics is None:
        del members["diagnostics"]
    return members


def _event(kind: str, members: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json_ascii({"type": kind, **members}))
