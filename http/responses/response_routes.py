"""The routes of `/v1/responses`: creating, counting, compacting, and what is stored."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

import attrs
import trio
from quart import Blueprint, Response, request

from greenroom.actors.core.ref import Ref, ask_actor
from greenroom.actors.requests.generation import Generation
from greenroom.actors.requests.prompt_queries import count_prompt_tokens, render_prompt
from greenroom.actors.responses.event_log import Subscribed
from greenroom.actors.store.tables import ask_store
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting import CollectedChoice, collect_choices
from greenroom.http.answering.current_request import (
    answer_id,
    request_client,
    request_id,
    request_owner,
    request_resources,
)
from greenroom.http.answering.event_stream import EventStream
from greenroom.http.answering.http_responses import json_response, stream_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, JSON, STORED, described
from greenroom.http.answering.request_parameters import ListQuery, parse_list_query
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.responses.compaction import REQUEST, CompactionLimits, compacted, items_as_read
from greenroom.http.responses.history_reader import HistoryReader
from greenroom.http.responses.item_bodies import check_included, item_page
from greenroom.http.responses.mcp_tools import response_loop
from greenroom.http.responses.posted_message import socket_request
from greenroom.http.responses.request_parser import (
    UNSUPPORTED,
    ParsedResponseRequest,
    parse_prompt_request,
    parse_response_request,
)
from greenroom.http.responses.response_object import usage_object
from greenroom.http.responses.socket_session import answer_on_socket
from greenroom.http.responses.stored_answer import (
    answer_stored,
    as_events,
    parse_stored_query,
    stored_response,
    stream_of,
    with_encrypted_reasoning,
)
from greenroom.schemas.messages.messages import JsonObject, Message, ReasoningSettings, TextPart, ToolChoice
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.protocols.responses_protocol import CancelRun, Deleted, DeleteRun, Retrieve, Subscribe
from greenroom.schemas.stored import StoredResponse
from greenroom.schemas.wire.responses_items import RESPONSES
from greenroom.schemas.wire.responses_requests import CompactRequest, PromptRequest, ResponseRequest


def response_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
    """Return the blueprint of the routes that generate responses and count their input tokens."""
    routes = Blueprint("responses", __name__)

    @routes.post("/v1/responses")
    @described(
        "Generate a response",
        body=ResponseRequest,
        converter=RESPONSES,
        media=(JSON, EVENTS),
        problems=(*ANSWERED_BY_A_MODEL, *STORED),
    )
    async def responses() -> Response:
        socket = socket_request()
        parse = partial(
            parse_response_request,
            answer_id=answer_id("resp_"),
            identity=(request_id(), request_client()),
            settings=services.settings_now,
            on_socket=socket is not None,
        )
        look = None if socket is None else socket.read
        wire, parsed = await services.read_request(
            ResponseRequest, RESPONSES, UNSUPPORTED, parse, files=True, look=look, adapts=True
        )
        if socket is not None:
            return await answer_on_socket(services, histories, parsed, socket)
        stream = bool(wire.stream)
        if parsed.stored:
            return await answer_stored(services, histories, parsed, stream=stream)
        complete = await histories.complete(parsed, request_owner(), request_client())
        loop = await response_loop(services, parsed, complete)
        return await answer_request(services, [complete.request], parsed.formatter, stream=stream, loop=loop)

    @routes.post("/v1/responses/input_tokens")
    @described(
        "Count the tokens of a prompt",
        body=PromptRequest,
        converter=RESPONSES,
        problems=(*ANSWERED_BY_A_MODEL, *STORED),
    )
    async def input_tokens() -> Response:
        parse = partial(parse_prompt_request, request_id=request_id(), client=request_client())
        _, parsed = await services.read_request(
            PromptRequest, RESPONSES, UNSUPPORTED, parse, files=True, adapts=True
        )
        complete = await histories.complete(parsed, request_owner(), request_client())
        counted = await count_prompt_tokens(services.refs.pool, await services.with_files(complete.request))
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    return routes


@attrs.frozen
class StoredQueryParameters:
    """The query of a stored response. `stream`: True to return the response as events; `include_obfuscation`:
    True to pad deltas.
    """

    stream: bool = False
    starting_after: int | None = None
    include_obfuscation: bool | None = None


def stored_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("stored_responses", __name__)
    responses, answers = services.refs.responses, services.answers

    @routes.get("/v1/responses/<ident>")
    @described(
        "Show a stored response, or stream its events",
        query=StoredQueryParameters,
        media=(JSON, EVENTS),
        problems=STORED,
    )
    async def retrieve(ident: str) -> Response:
        query = parse_stored_query(request.args)
        if not query.stream:
            found = await ask_actor(responses, Retrieve(ident, request_owner()), StoredResponse)
            if query.encrypted:
                found = await trio.to_thread.run_sync(with_encrypted_reasoning, found)
            return await stored_response(answers, found)
        subscribed = await ask_actor(responses, Subscribe(ident, request_owner()), Subscribed)
        request_resources().enter_context(closing(subscribed.subscription))
        assert subscribed.response is not None
        stream = await trio.to_thread.run_sync(stream_of, subscribed.response, query)
        return stream_response(EventStream(as_events(subscribed.subscription), stream))

    @routes.delete("/v1/responses/<ident>")
    @described("Delete a stored response", problems=STORED)
    async def delete(ident: str) -> Response:
        await ask_actor(responses, DeleteRun(ident, request_owner()), Deleted)
        return json_response({"id": ident, "object": "response", "deleted": True})

    @routes.post("/v1/responses/<ident>/cancel")
    @described("Cancel a background response", problems=STORED)
    async def cancel(ident: str) -> Response:
        return await stored_response(
            answers, await ask_actor(responses, CancelRun(ident, request_owner()), StoredResponse)
        )

    @routes.get("/v1/responses/<ident>/input_items")
    @described("List the input items of a stored response", query=ListQuery, problems=STORED)
    async def input_items(ident: str) -> Response:
        included = check_included(request.args)
        query, owner = parse_list_query(request.args, "desc"), request_owner()
        page = await ask_store(
            services.refs.store,
            lambda tables: tables.responses.list_input(ident, owner, query.after, query.limit, query.order),
        )
        return await item_page(answers, page, included)

    return routes


_INSTRUCTION = Message("user", (TextPart(REQUEST),))


_NOTHING_LEFT = (
    "Nothing is left to compact: what was said last is by itself longer than this model's maximum context "
    "length."
)


def compact_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
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

        _, parsed = await services.read_request(
            CompactRequest, RESPONSES, UNSUPPORTED, parse, files=True, adapts=True
        )
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
