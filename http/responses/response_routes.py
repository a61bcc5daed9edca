"""The routes `POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.requests.consultation import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.requests.current_request import (
    answer_id,
    read_request,
    request_client,
    request_id,
    request_owner,
    sampling_defaults,
    stores_answers,
    with_files,
)
from greenroom.http.responses.history.recall import recall, recall_nothing
from greenroom.http.responses.history.recalled import Recalled
from greenroom.http.responses.requests.parameters import UNSUPPORTED
from greenroom.http.responses.requests.response_request import AskedResponse, parse_response_request
from greenroom.http.responses.sockets.socket_answer import answer_on_socket
from greenroom.http.responses.sockets.socket_turn import socket_turn
from greenroom.http.responses.turns.stored_answer import answer_stored
from greenroom.http.responses.turns.turn import parse_turn
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import PromptRequest, ResponseRequest


def response_routes(refs: ActorRefs, status_timeout: float) -> Blueprint:
    """Return the blueprint of the routes that generate responses and count their input tokens.

    Args:
        status_timeout: Time limit in seconds until a client gets its status.
    """
    routes = Blueprint("responses", __name__)

    @routes.post("/v1/responses")
    async def responses() -> Response:
        parse = partial(
            parse_turn,
            answer_id=answer_id("resp_"),
            identity=(request_id(), request_client()),
            storing=stores_answers(),
            defaults=sampling_defaults(),
        )
        socket = socket_turn()
        look = None if socket is None else socket.read
        wire, turn = await read_request(ResponseRequest, RESPONSES, UNSUPPORTED, parse, files=True, look=look)
        if socket is not None:
            return await answer_on_socket(refs, turn, socket, status_timeout=status_timeout)
        stream = bool(wire.stream)
        if turn.stored:
            return await answer_stored(refs, turn, stream=stream, status_timeout=status_timeout)
        recalled = turn.alone or await recall(refs.store, turn.asked, request_owner(), request_client())
        return await answer_request(
            refs.pool, [recalled.request], turn.formatter, stream=stream, status_timeout=status_timeout
        )

    @routes.post("/v1/responses/input_tokens")
    async def input_tokens() -> Response:
        ident = request_id()

        def parse(wire: PromptRequest, body: JsonObject) -> tuple[AskedResponse, Recalled | None]:
            asked = parse_response_request(wire, body, ident)
            return asked, recall_nothing(asked) if asked.stands_alone else None

        _, (asked, recalled) = await read_request(PromptRequest, RESPONSES, UNSUPPORTED, parse, files=True)
        recalled = recalled or await recall(refs.store, asked, request_owner(), request_client())
        counted = await count_prompt_tokens(refs.pool, await with_files(recalled.request))
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    return routes
