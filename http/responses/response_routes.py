"""The routes `POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.http_responses import json_response
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
from greenroom.http.responses.history.history_reader import HistoryReader
from greenroom.http.responses.requests.parameters import UNSUPPORTED
from greenroom.http.responses.requests.request_parser import parse_prompt_request, parse_response_request
from greenroom.http.responses.sockets.socket_answer import answer_on_socket
from greenroom.http.responses.sockets.socket_request import socket_request
from greenroom.http.responses.stored.stored_answer import answer_stored
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import PromptRequest, ResponseRequest


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
            ResponseRequest, RESPONSES, UNSUPPORTED, parse, files=True, look=look
        )
        if socket is not None:
            return await answer_on_socket(services, histories, parsed, socket)
        stream = bool(wire.stream)
        if parsed.stored:
            return await answer_stored(services, histories, parsed, stream=stream)
        request = (await histories.complete(parsed, request_owner(), request_client())).request
        return await answer_request(services, [request], parsed.formatter, stream=stream)

    @routes.post("/v1/responses/input_tokens")
    @described(
        "Count the tokens of a prompt",
        body=PromptRequest,
        converter=RESPONSES,
        problems=(*ANSWERED_BY_A_MODEL, *STORED),
    )
    async def input_tokens() -> Response:
        parse = partial(parse_prompt_request, request_id=request_id())
        _, parsed = await services.read_request(PromptRequest, RESPONSES, UNSUPPORTED, parse, files=True)
        complete = await histories.complete(parsed, request_owner(), request_client())
        counted = await count_prompt_tokens(services.refs.pool, await services.with_files(complete.request))
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    return routes
