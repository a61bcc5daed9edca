"""`POST /v1/responses/compact`: the model summarizes a conversation, returned as encrypted content."""

from __future__ import annotations

import time

import attrs
import trio
from quart import Blueprint, Response

from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.generation import Generation
from greenroom.actors.requests.prompt_queries import render_prompt
from greenroom.http.answering.collecting.collected_answer import CollectedChoice, collect_choices
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, STORED, described
from greenroom.http.answering.requests.current_request import (
    answer_id,
    request_client,
    request_id,
    request_owner,
    request_resources,
)
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.responses.history.compaction import REQUEST, CompactionLimits, compacted, items_as_read
from greenroom.http.responses.history.history_reader import HistoryReader
from greenroom.http.responses.output.response_object import usage_object
from greenroom.http.responses.requests.parameters import UNSUPPORTED
from greenroom.http.responses.requests.request_parser import parse_prompt_request
from greenroom.http.responses.requests.response_request import ParsedResponseRequest
from greenroom.schemas.messages.messages import JsonObject, Message, TextPart, ToolChoice
from greenroom.schemas.messages.reasoning import ReasoningSettings
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import CompactRequest

_INSTRUCTION = Message("user", (TextPart(REQUEST),))


_NOTHING_LEFT = (
    "Nothing is left to compact: what was said last is by itself longer than this model's maximum context "
    "length."
)


def compact_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
    """Return the blueprint of the compaction route."""
    routes = Blueprint("compact", __name__)
    pool = services.refs.pool

    @routes.post("/v1/responses/compact")
    @described(
        "Summarize a conversation",
        body=CompactRequest,
        converter=RESPONSES,
        problems=(*ANSWERED_BY_A_MODEL, *STORED),
    )
    async def compact() -> Response:
        identity = (request_id(), request_client())

        def parse(wire: CompactRequest, body: JsonObject) -> ParsedResponseRequest:
            if wire.model is None:
                raise missing("model")
            return parse_prompt_request(wire, body, *identity)

        _, parsed = await services.read_request(CompactRequest, RESPONSES, UNSUPPORTED, parse, files=True)
        complete = await histories.complete(parsed, request_owner(), request_client())
        request = await services.with_files(complete.request)
        cipher = await histories.cipher.load(request_owner())
        limits = await _limits(pool, request)
        summarizing = Generation(pool, summary_request(request, limits.summary), limited=True)
        [summary] = await collect_choices(request_resources().enter_context(summarizing))
        text = summary.text.strip() or summary.reasoning.strip()
        read = items_as_read((*complete.history, *complete.items))
        compaction = await trio.to_thread.run_sync(compacted, text, read, limits)
        if summary.dropped_messages and not compaction.has_turns and _is_all(summary, request):
            raise invalid(_NOTHING_LEFT, parsed.field, "context_length_exceeded")
        return json_response(
            {
                "id": answer_id("resp_"),
                "object": "response.compaction",
                "created_at": int(time.time()),
                "model": summarizing.key.model,
                "output": [compaction_item(answer_id("cmp_"), compaction.encrypt(cipher))],
                "usage": usage_object(summary.finished),
                **({"dropped_messages": summary.dropped_messages} if summary.dropped_messages else {}),
            }
        )

    return routes


def _is_all(summary: CollectedChoice, request: InferenceRequest) -> bool:
    """Return whether all non-system messages were dropped because the last turn alone is too long."""
    assert isinstance(request.input, ChatInput)
    said = [message for message in request.input.messages if message.role != "system"]
    return summary.dropped_messages >= len(said)


async def _limits(pool: Ref[PoolMessage], request: InferenceRequest) -> CompactionLimits:
    """Return the size limits of a compaction for the request's model."""
    contents = await render_prompt(
        pool, attrs.evolve(request, input=ChatInput((_INSTRUCTION,)), response_format=None)
    )
    return CompactionLimits.within(contents.context)


def summary_request(request: InferenceRequest, most: int) -> InferenceRequest:
    """Return a request that asks the model to summarize the conversation of another request.

    Both prompts begin alike, so that the prefix cache applies. The oldest messages are dropped if the
    conversation and the summary together exceed the context.

    Args:
        most: Limit of the summary in tokens.
    """
    chat = request.input
    assert isinstance(chat, ChatInput)
    summarized = attrs.evolve(
        chat,
        messages=(*chat.messages, _INSTRUCTION),
        tool_choice=ToolChoice("none"),
        thinking=ReasoningSettings(False),
    )
    return attrs.evolve(
        request,
        input=summarized,
        overrides={"max_tokens": most},
        response_format=None,
        overflow="drop_oldest",
    )


def compaction_item(ident: str, encrypted: str) -> dict[str, str]:
    """Return the compaction item, which the client sends in place of the conversation."""
    return {"id": ident, "type": "compaction", "encrypted_content": encrypted}
