"""The route `POST /v1/chat/completions`."""

from __future__ import annotations

from functools import partial

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting.completed_stream import OnComplete
from greenroom.http.answering.protocols.route_description import (
    ANSWERED_BY_A_MODEL,
    EVENTS,
    JSON,
    STORED,
    described,
)
from greenroom.http.answering.requests.current_request import (
    answer_id,
    request_client,
    request_id,
    request_owner,
)
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.tools.custom_tools import custom_names_of
from greenroom.http.openai.chat.chat_formatter import ChatFormatter
from greenroom.http.openai.chat.chat_request import parse_chat_request
from greenroom.http.openai.chat.stored_completion import (
    RequestToStore,
    parse_request_to_store,
    save_completion,
)
from greenroom.http.openai.text.chunk_stream import DONE
from greenroom.http.openai.text.parameters import UNSUPPORTED_IN_CHAT
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.openai.answers import ChatCompletion
from greenroom.schemas.openai.chat import ChatRequest
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed


def chat_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that answers chats."""
    routes = Blueprint("chat", __name__)

    @routes.post("/v1/chat/completions")
    @described(
        "Answer a chat",
        body=ChatRequest,
        converter=OPENAI,
        answer=ChatCompletion,
        media=(JSON, EVENTS),
        problems=(*ANSWERED_BY_A_MODEL, *STORED),
    )
    async def chat_completions() -> Response:
        storing = services.settings.store_responses
        parse = partial(_parse, request_id=request_id(), client=request_client(), storing=storing)
        wire, (chat, to_store) = await services.read_request(
            ChatRequest, OPENAI, UNSUPPORTED_IN_CHAT, parse, files=True
        )
        if to_store is not None:
            await ask_actor(services.refs.store, CheckStoring(request_owner()), Committed)
        # The parsed request has its own copy of the messages; holding files twice would waste memory.
        wire = attrs.evolve(wire, messages=())
        formatter = ChatFormatter(wire, answer_id("chatcmpl-"), chat.choices, custom=custom_names_of(chat))
        on_complete = None
        if to_store is not None:
            save = partial(save_completion, services.refs.store, request_owner(), formatter, to_store)
            on_complete = OnComplete(save, DONE)
        stream = bool(wire.stream)
        return await answer_request(services, [chat], formatter, stream=stream, on_complete=on_complete)

    return routes


def _parse(
    wire: ChatRequest, body: JsonObject, request_id: str, client: str, storing: bool
) -> tuple[InferenceRequest, RequestToStore | None]:
    return parse_chat_request(wire, body, request_id, client), parse_request_to_store(
        wire, body, storing=storing
    )
