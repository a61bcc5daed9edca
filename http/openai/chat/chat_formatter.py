"""Formatting of chat responses, streamed or complete."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.answering.tools.text_input import text_of
from greenroom.http.openai.chat.chat_stream import ChatStream
from greenroom.http.openai.chat.legacy_functions import FunctionStream, function_call, speaks_of_functions
from greenroom.http.openai.text.chunk_stream import (
    finish_reason,
    includes_status,
    includes_usage,
    system_fingerprint,
)
from greenroom.http.openai.text.logprobs import chat_logprobs
from greenroom.http.openai.text.timings import timings
from greenroom.http.openai.text.usage import usage_body
from greenroom.schemas.messages.messages import ToolCall
from greenroom.schemas.openai.answers import ChatChoice, ChatCompletion, ChatMessage, is_sent
from greenroom.schemas.openai.chat import ChatRequest


@attrs.frozen
class ChatFormatter:
    """Formats the response to one chat request.

    Args:
        wire: Request of the client.
        answer_id: Id of the response, `chatcmpl-…`.
        choices: Number of choices.
        created: Unix time in seconds.
        custom: Names of the custom tools.
    """

    wire: ChatRequest
    answer_id: str
    choices: int = 1
    created: int = attrs.field(factory=lambda: int(time.time()))
    custom: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)

    def stream(self, model: str) -> ChatStream:
        """Return a formatter for a streamed response."""
        kind = FunctionStream if speaks_of_functions(self.wire) else ChatStream
        return kind(
            self.answer_id,
            model,
            self.created,
            choices=self.choices,
            include_usage=includes_usage(self.wire.stream_options),
            with_progress=bool(self.wire.return_progress),
            with_status=includes_status(self.wire.stream_options),
            custom=self.custom,
        )

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        """Return a complete response as `chat.completion`."""
        finished = [choice.finished for choice in choices]
        answer = ChatCompletion(
            self.answer_id,
            self.created,
            model,
            tuple(self._choice(i, choice) for i, choice in enumerate(choices)),
            usage_body(finished, self.choices),
            timings(finished, self.choices),
            system_fingerprint(),
            dropped_messages=choices[0].dropped_messages or None,
            service_tier="flex" if self.wire.service_tier == "flex" else None,
        )
        return attrs.asdict(answer, filter=is_sent)

    def _choice(self, index: int, choice: CollectedChoice) -> ChatChoice:
        reasoning = choice.reasoning or None
        calls, reason = choice.tool_calls, finish_reason(choice.finished)
        message = ChatMessage(
            content=None if calls and not choice.text else choice.text,
            reasoning_content=reasoning,
            reasoning=reasoning,
        )
        if speaks_of_functions(self.wire):
            message = attrs.evolve(message, function_call=function_call(calls))
            reason = "function_call" if reason == "tool_calls" else reason
        else:
            message = attrs.evolve(message, tool_calls=tuple(map(self._tool_call, calls)) or None)
        wanted = choice.parameters is not None and choice.parameters.logprobs
        logprobs = json.loads(chat_logprobs(choice.logprobs, empty=wanted and not calls))
        return ChatChoice(index, message, reason, choice.finished.stop, logprobs)

    def _tool_call(self, call: ToolCall) -> dict[str, Any]:
        if call.name in self.custom:
            custom = {"name": call.name, "input": text_of(call.arguments)}
            return {"id": call.id, "type": "custom", "custom": custom}
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id, "type": "function", "function": function}
