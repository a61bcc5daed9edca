"""`POST /v1/responses/compact`: the model sums a conversation up, and the client keeps the result, sealed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import attrs
from quart import Blueprint, Response

from greenroom.actors.actor_refs import ActorRefs
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collected_answer import CollectedChoice
from greenroom.http.answering.current_request import (
    answer_id,
    read_request,
    request_client,
    request_id,
    request_owner,
)
from greenroom.http.answering.event_stream import StreamFormatter
from greenroom.http.answering.seal import Seal
from greenroom.http.answering.server_seal import server_seal
from greenroom.http.responses.compaction import REQUEST, SUMMARY_TOKENS, compacted
from greenroom.http.responses.history import recall
from greenroom.http.responses.response_object import usage_object
from greenroom.http.responses.response_request import AskedResponse, parse_response_request
from greenroom.schemas.messages import JsonObject, Message, TextPart, ToolChoice
from greenroom.schemas.requests import ChatInput, InferenceRequest
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import PromptRequest
from greenroom.schemas.thinking import Thinking


def compact_routes(refs: ActorRefs) -> Blueprint:
    """Return the route."""
    routes = Blueprint("compact", __name__)

    @routes.post("/v1/responses/compact")
    async def compact() -> Response:
        identity = (request_id(), request_client())

        def parse(wire: PromptRequest, body: JsonObject) -> AskedResponse:
            return parse_response_request(wire, body, *identity)

        _, asked = await read_request(PromptRequest, RESPONSES, {}, parse)
        recalled = await recall(refs.store, asked, request_owner())
        seal = await server_seal(refs.store)
        formatter = CompactionFormatter(answer_id(""), recalled.conversation, seal)
        request = summary_request(recalled.request)
        return await answer_request(refs.pool, [request], formatter, stream=False, status_timeout=0)

    return routes


def summary_request(request: InferenceRequest) -> InferenceRequest:
    """Return the request for a summary of a request's conversation.

    It begins as that request does, so that what is cached of it is found. What has no room for the summary is
    left out from its beginning.
    """
    chat = request.input
    assert isinstance(chat, ChatInput)
    asked = attrs.evolve(
        chat,
        messages=(*chat.messages, Message("user", (TextPart(REQUEST),))),
        tool_choice=ToolChoice("none"),
        thinking=Thinking(False),
    )
    return attrs.evolve(
        request,
        input=asked,
        overrides={"max_tokens": SUMMARY_TOKENS},
        response_format=None,
        overflow="drop_oldest",
    )


@attrs.frozen
class CompactionFormatter:
    """Formats a summary as what the client gives back in the place of its conversation.

    Args:
        ident: Of the request; those of the answer and its item are made from it.
        conversation: That is compacted.
        created: Unix time in seconds.
    """

    ident: str
    conversation: Sequence[JsonObject]
    seal: Seal
    created: int = attrs.field(factory=lambda: int(time.time()))

    def stream(self, model: str) -> StreamFormatter:
        """Compactions are not streamed."""
        raise NotImplementedError

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        """Return the compaction."""
        [choice] = choices
        compaction = compacted(choice.text.strip() or choice.thought.strip(), self.conversation)
        item = {
            "id": f"cmp_{self.ident}",
            "type": "compaction",
            "encrypted_content": compaction.sealed(self.seal),
        }
        return {
            "id": f"resp_{self.ident}",
            "object": "response.compaction",
            "created_at": self.created,
            "model": model,
            "output": [item],
            "usage": usage_object(choice.finished.usage),
        }
