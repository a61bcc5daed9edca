"""Routes `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from functools import partial

import attrs
from quart import Blueprint, Response, request

from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.current_request import answer_id, request_client, request_id
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, JSON, described
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.answering.server_tools import ServerFinder
from greenroom.http.anthropic.mcp_toolsets import message_loop
from greenroom.http.anthropic.message_stream import MessageFormatter, asks_to_cache
from greenroom.http.anthropic.messages_request import UNSUPPORTED, parse_messages_request
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.wire.anthropic import ANTHROPIC, MessageBody, MessagesRequest, PromptRequest


def message_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("messages", __name__)

    @routes.post("/v1/messages")
    @described(
        "Answer a chat in Anthropic's protocol",
        body=MessagesRequest,
        converter=ANTHROPIC,
        answer=MessageBody,
        media=(JSON, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def messages() -> Response:
        neutral = partial(
            parse_messages_request, request_id=request_id(), client=request_client(), betas=_betas()
        )

        def parse(wire: MessagesRequest, body: JsonObject) -> tuple[InferenceRequest, bool]:
            return neutral(wire, body), asks_to_cache(body)

        wire, (asked, marked) = await services.read_request(
            MessagesRequest, ANTHROPIC, UNSUPPORTED, parse, files=True
        )
        # The parsed request has its own copy of the messages; holding files twice would waste memory.
        wire = attrs.evolve(wire, messages=())
        formatter = MessageFormatter(wire, answer_id("msg_"), request_id(), marked)
        stream = bool(wire.stream)
        loop = message_loop(ServerFinder(services), wire)
        return await answer_request(services, [asked], formatter, stream=stream, loop=loop)

    @routes.post("/v1/messages/count_tokens")
    @described(
        "Count the tokens of a prompt", body=PromptRequest, converter=ANTHROPIC, problems=ANSWERED_BY_A_MODEL
    )
    async def count_tokens() -> Response:
        parse = partial(parse_messages_request, request_id=request_id(), betas=_betas())
        _, asked = await services.read_request(PromptRequest, ANTHROPIC, UNSUPPORTED, parse, files=True)
        counted = await count_prompt_tokens(services.refs.pool, await services.with_files(asked))
        return json_response({"input_tokens": counted})

    return routes


def _betas() -> str:
    return ",".join(request.headers.getlist("anthropic-beta"))


def probe_routes() -> Blueprint:
    routes = Blueprint("probes", __name__)

    @routes.get("/api/hello")
    @described("Greet a client that tests the connection")
    async def hello() -> Response:
        return json_response({"message": "hello"})

    @routes.route("/v1/messages/batches", defaults={"_path": ""}, methods=["GET", "POST"])
    @routes.route("/v1/messages/batches/<path:_path>", methods=["GET", "POST", "DELETE"])
    @described("Refuse batches", status=None, problems=(501,))
    async def batches(_path: str) -> Response:
        detail = "Batches are not served here: send their requests to /v1/messages, many at once if you like."
        raise ProblemError(Problem(501, "batches_not_supported", detail))

    return routes
