"""Formatting of responses to `POST /v1/messages`, streamed or complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.anthropic.output.answer_blocks import answer_blocks
from greenroom.http.anthropic.output.message_stream import MessageStream, message_members
from greenroom.http.anthropic.output.stop_reason import stop_reason
from greenroom.http.anthropic.output.usage import usage_members
from greenroom.http.anthropic.requests.thinking import hides_reasoning
from greenroom.schemas.anthropic.answers import MessageBody
from greenroom.schemas.anthropic.messages import MessagesRequest

NO_DIAGNOSIS = {"cache_miss_reason": {"type": "unavailable"}}
"""Reply to clients that ask why a prompt missed the cache: earlier prompts are not kept for comparison."""


@attrs.frozen
class MessageFormatter:
    """Formats the response to one request.

    Args:
        wire: Request of the client.
        answer_id: Id of the response, `msg_…`.
        request_id: Id of the request, for errors within a stream.
        asked_to_cache: True if the client set `cache_control` anywhere.
    """

    wire: MessagesRequest
    answer_id: str
    request_id: str
    asked_to_cache: bool = False

    def stream(self, model: str) -> MessageStream:
        """Return a formatter for a streamed response."""
        return MessageStream(
            MessageBody(self.answer_id, model, (), None, None, None, self._diagnostics()),
            self.request_id,
            max_tokens=self.wire.max_tokens,
            hides_reasoning=hides_reasoning(self.wire),
            asked_to_cache=self.asked_to_cache,
        )

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        """Return a complete response as a message."""
        [choice] = choices
        reason, sequence = stop_reason(choice.finished, self.wire.max_tokens)
        blocks = answer_blocks(choice.parts, hides_reasoning=hides_reasoning(self.wire))
        message = MessageBody(self.answer_id, model, blocks, reason, sequence, None, self._diagnostics())
        usage = usage_members(choice.finished, asked_to_cache=self.asked_to_cache)
        return {**message_members(message), "usage": usage}

    def _diagnostics(self) -> dict[str, Any] | None:
        return None if self.wire.diagnostics is None else NO_DIAGNOSIS
