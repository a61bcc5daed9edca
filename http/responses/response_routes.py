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
)
from greenroom.http.answering.http_responses import json_response
from greenroom.http.responses.echo import make_echo
from greenroom.http.responses.parameters import UNSUPPORTED
from greenroom.http.responses.response_formatter import ResponseFormatter
from greenroom.http.responses.response_object import ResponseEcho
from greenroom.http.responses.response_request import AskedResponse, parse_response_request
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.requests import InferenceRequest
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

        def parse(wire: ResponseRequest, body: JsonObject) -> tuple[InferenceRequest, ResponseEcho]:
            asked = parse_response_request(wire, body, *identity)
            echo = make_echo(wire, asked.parameters, asked.text_format, stored=False)
            return _without_history(asked), echo

        wire, (asked, echo) = await read_request(ResponseRequest, RESPONSES, UNSUPPORTED, parse)
        formatter = ResponseFormatter(echo, answer_id("resp_"))
        stream = bool(wire.stream)
        return await answer_request(
            refs.pool, [asked], formatter, stream=stream, status_timeout=status_timeout
        )

    @routes.post("/v1/responses/input_tokens")
    async def input_tokens() -> Response:
        ident = request_id()

        def parse(wire: PromptRequest, body: JsonObject) -> InferenceRequest:
            return _without_history(parse_response_request(wire, body, ident))

        _, asked = await read_request(PromptRequest, RESPONSES, UNSUPPORTED, parse)
        counted = await count_prompt_tokens(refs.pool, asked)
        if isinstance(counted, Problem):
            raise ProblemError(counted)
        return json_response({"object": "response.input_tokens", "input_tokens": counted})

    return routes


def _without_history(asked: AskedResponse) -> InferenceRequest:
    if asked.previous is not None:
        raise ProblemError(response_not_found(asked.previous, "previous_response_id"))
    if asked.conversation is not None:
        raise ProblemError(conversation_not_found(asked.conversation))
    return asked.request()


def response_not_found(ident: str, field: str | None = None) -> Problem:
    """Return the problem of a response that is not kept here."""
    code = "previous_response_not_found" if field else "response_not_found"
    return Problem(404, code, f"No response {ident[:80]!r} is stored here.", field)


def conversation_not_found(ident: str) -> Problem:
    """Return the problem of a conversation that is not kept here."""
    detail = f"No conversation {ident[:80]!r} is stored here."
    return Problem(404, "conversation_not_found", detail, "conversation")
