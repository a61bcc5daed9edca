"""The route `POST /v1/completions`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, EVENTS, JSON, described
from greenroom.http.answering.requests.current_request import answer_id, request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.openai.completions.completion_formatter import CompletionFormatter
from greenroom.http.openai.completions.completion_request import parse_choices, parse_completion_requests
from greenroom.http.openai.text.parameters import UNSUPPORTED_IN_COMPLETIONS
from greenroom.schemas.openai.answers import Completion
from greenroom.schemas.openai.completions import CompletionRequest
from greenroom.schemas.openai.converter import OPENAI


def completion_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that completes text."""
    routes = Blueprint("completions", __name__)

    @routes.post("/v1/completions")
    @described(
        "Continue a text",
        body=CompletionRequest,
        converter=OPENAI,
        answer=Completion,
        media=(JSON, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def completions() -> Response:
        parse = partial(parse_completion_requests, request_id=request_id(), client=request_client())
        wire, requests = await services.read_request(
            CompletionRequest, OPENAI, UNSUPPORTED_IN_COMPLETIONS, parse
        )
        candidates = requests[0].choices
        choices = parse_choices(wire, candidates)
        formatter = CompletionFormatter(wire, answer_id("cmpl-"), choices, candidates)
        stream = bool(wire.stream)
        return await answer_request(services, requests, formatter, stream=stream)

    return routes
