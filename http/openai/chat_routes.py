"""`POST /v1/chat/completions`: validate, ask, format."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.current_request import (
    answer_id,
    read_request,
    request_client,
    request_id,
)
from greenroom.http.answering.custom_tools import custom_names_of
from greenroom.http.openai.chat_formatter import ChatFormatter
from greenroom.http.openai.chat_request import parse_chat_request
from greenroom.http.openai.parameters import UNSUPPORTED_IN_CHAT
from greenroom.schemas.openai.chat import ChatRequest
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.pool_protocol import PoolMessage


def chat_routes(pool: Ref[PoolMessage], status_timeout: float) -> Blueprint:
    """Return the routes.

    Args:
        status_timeout: Seconds that a client waits for its status at most.
    """
    routes = Blueprint("chat", __name__)

    @routes.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        parse = partial(parse_chat_request, request_id=request_id(), client=request_client())
        wire, chat = await read_request(ChatRequest, OPENAI, UNSUPPORTED_IN_CHAT, parse)
        formatter = ChatFormatter(wire, answer_id("chatcmpl-"), chat.choices, custom=custom_names_of(chat))
        stream = bool(wire.stream)
        return await answer_request(pool, [chat], formatter, stream=stream, status_timeout=status_timeout)

    return routes
