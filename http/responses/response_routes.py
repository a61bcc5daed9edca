"""`POST /v1/responses` and `POST /v1/responses/input_tokens`: validate, ask, format."""

from __future__ import annotations

from quart import Blueprint, Response

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.consultation import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.current_request import (
    answer_id,
    read_request,
    request_client,
    request_id,
    request_owner,
)
from greenroom.http.answering.http_responses import json_response
from greenroom.http.responses.echo import make_echo
from greenroom.http.responses.history import Recalled, recall, recall_nothing
from greenroom.http.responses.parameters import UNSUPPORTED
from greenroom.http.responses.response_formatter import ResponseFormatter
from greenroom.http.responses.response_object import ResponseEcho
from greenroom.http.responses.response_request import AskedResponse, parse_response_request
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.requests import PromptRequest, ResponseRequest


def response_routes(refs: ActorRefs, status_timeout: float) -> Blueprint:
    """Return the routes.

    Args:
        status_timeout: Seconds that a client waits for its status at most.
    """
    routes = Blueprint("responses", __name__)

    @routes.post("/v1/responses")
    async def responses() -> Response:
        identity = (request_id(), request_client())

        def parse(
            wire: ResponseRequest, body: JsonObject
        ) -> tuple[AskedResponse, Recalled | None, ResponseEcho]:
            asked = parse_response_request(wire, body, *identity)
            echo = make_echo(wire, asked.parameters, asked.text_format, stored=False)
            return asked, recall_nothing(asked) if asked.stands_alone else None, echo

        wire, (asked, recalled, echo) = await read_request(ResponseRequest, RESPONSES, UNSUPPORTED, parse)
        recalled = recalled or await recall(refs.store, asked, request_owner())
        formatter = ResponseFormatter(echo, answer_id("resp_"))
        stream = bool(wire.stream)
        return await answer_request(
            refs.pool, [recalled.request], formatter, stream=stream, status_timeout=status_timeout
        )

    @routes.post("/v1/responses/input_tokens")
    async def input_tokens() -> Response:
        ident = request_id()

        def parse(wire: PromptRequest, body: JsonObject) -> tuple[AskedResponse, Recalled | None]:
            asked = parse_response_request(wire, body, ident)
            return asked, recall_nothing(asked) if asked.stands_alone else None

        _, (asked, recalled) = await read_request(PromptRequest, RESPONSES, UNSUPPORTED, parse)
        recalled = recalled or await recall(refs.store, asked, request_owner())
        counted = await count_prompt_tokens(refs.pool, recalled.request)
        if isinstance(counted, Problem):
            raise ProblemError(counted)
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    return routes
