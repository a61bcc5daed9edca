"""`POST /v1/chat/completions`: validate, ask, format."""

from __future__ import annotations

import time

from quart import Blueprint, Response, request

from greenroom.actors.core.ref import Ref
from greenroom.actors.generation import Generation
from greenroom.http.answering.answering import collect, json_response, stream_response
from greenroom.http.answering.current_request import answer_id, request_id, request_resources
from greenroom.http.answering.event_stream import EventStream
from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.answering.response_timing import wait_for_first_event
from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.request_body import read_json
from greenroom.http.openai.chat_request import parse_chat_request
from greenroom.http.openai.chat_stream import ChatStream
from greenroom.http.openai.parameters import UNSUPPORTED_IN_CHAT
from greenroom.http.openai.whole_answers import chat_completion
from greenroom.schemas.model_protocol import PoolMessage
from greenroom.schemas.openai.chat import ChatRequest
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.wire import structure


def chat_routes(pool: Ref[PoolMessage], status_timeout: float) -> Blueprint:
    """The routes.

    Args:
        status_timeout: Seconds that a client waits for its status at most.
    """
    routes = Blueprint("chat", __name__)

    @routes.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        body = await read_json(request)
        refuse_unsupported(body, UNSUPPORTED_IN_CHAT)
        wire = structure(body, ChatRequest, OPENAI)
        asked = parse_chat_request(
            wire, body, request_id(), client_name(request.headers, request.remote_addr)
        )
        generation = request_resources().enter_context(Generation(pool, asked))
        created = int(time.time())
        if not wire.stream:
            choices = await collect(generation, asked.choices)
            model = generation.key.model
            return json_response(chat_completion(answer_id("chatcmpl"), model, created, choices))
        begun = await wait_for_first_event(generation, status_timeout)
        usage = bool(wire.stream_options and wire.stream_options.include_usage)
        said_of_it = (answer_id("chatcmpl"), generation.key.model, created)
        progress = bool(wire.return_progress)
        formatter = ChatStream(
            *said_of_it, choices=asked.choices, include_usage=usage, with_progress=progress
        )
        return stream_response(EventStream(generation, formatter, begun))

    return routes
