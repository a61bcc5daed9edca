"""The routes `POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.actors.requests.consultation import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.requests.current_request import (
    answer_id,
    request_client,
    request_id,
    request_owner,
)
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.responses.history.recall import HistoryReader, recall_nothing
from greenroom.http.responses.history.recalled import Recalled
from greenroom.http.responses.requests.parameters import UNSUPPORTED
from greenroom.http.responses.requests.response_request import AskedResponse, parse_response_request
from greenroom.http.responses.sockets.socket_answer import answer_on_socket
from greenroom.http.responses.sockets.socket_turn import socket_turn
from greenroom.http.responses.turns.stored_answer import answer_stored
from greenroom.http.responses.turns.turn import parse_turn
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import PromptRequest, ResponseRequest
from greenroom.schemas.settings.settings import Settings


def response_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
    """Return the blueprint of the routes that generate responses and count their input tokens."""
    routes = Blueprint("responses", __name__)
    settings = services.settings

    @routes.post("/v1/responses")
    async def responses() -> Response:
        parse = partial(
            parse_turn,
            answer_id=answer_id("resp_"),
            identity=(request_id(), request_client()),
            storing=settings.store_responses,
            defaults=_sampling_defaults(settings),
        )
        socket = socket_turn()
        look = None if socket is None else socket.read
        wire, turn = await services.read_request(
            ResponseRequest, RESPONSES, UNSUPPORTED, parse, files=True, look=look
        )
        if socket is not None:
            return await answer_on_socket(services, histories, turn, socket)
        stream = bool(wire.stream)
        if turn.stored:
            return await answer_stored(services, histories, turn, stream=stream)
        recalled = turn.alone or await histories.recall(turn.asked, request_owner(), request_client())
        return await answer_request(services, [recalled.request], turn.formatter, stream=stream)

    @routes.post("/v1/responses/input_tokens")
    async def input_tokens() -> Response:
        ident = request_id()

        def parse(wire: PromptRequest, body: JsonObject) -> tuple[AskedResponse, Recalled | None]:
            asked = parse_response_request(wire, body, ident)
            return asked, recall_nothing(asked) if asked.stands_alone else None

        _, (asked, recalled) = await services.read_request(
            PromptRequest, RESPONSES, UNSUPPORTED, parse, files=True
        )
        recalled = recalled or await histories.recall(asked, request_owner(), request_client())
        counted = await count_prompt_tokens(services.refs.pool, await services.with_files(recalled.request))
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    return routes


def _sampling_defaults(settings: Settings) -> Overrides:
    """Return the operator's sampling defaults, for requests that set none."""
    defaults = {"temperature": settings.temperature, "top_p": settings.top_p}
    return {name: value for name, value in defaults.items() if value is not None}
