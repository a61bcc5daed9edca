"""`POST /v1/chat/completions`: validate, ask, format."""

from __future__ import annotations

from quart import Blueprint, Response, request

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.current_request import answer_id, request_id
from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.request_body import read_json
from greenroom.http.openai.chat_formatter import ChatFormatter
from greenroom.http.openai.chat_request import parse_chat_request
from greenroom.http.openai.parameters import UNSUPPORTED_IN_CHAT
from greenroom.schemas.model_protocol import PoolMessage
from greenroom.schemas.openai.chat import ChatRequest
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.wire import structure


def chat_routes(pool: Ref[PoolMessage], status_timeout: float) -> Blueprint:
    """Return the routes.

    Args:
        status_timeout: Seconds that a client waits for its status at most.
    """
    routes = Blueprint("chat", __name__)

    @routes.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        body = await read_json(request)
        refuse_unsupported(body, UNSUPPORTED_IN_CHAT)
        wire = structure(body, ChatRequest, OPENAI)
        client = client_name(request.headers, request.remote_addr)
        chat = parse_chat_request(wire, body, request_id(), client)
        formatter = ChatFormatter(wire, answer_id("chatcmpl"), chat.choices)
        stream = bool(wire.stream)
        return await answer_request(pool, [chat], formatter, stream=stream, status_timeout=status_timeout)

    return routes
