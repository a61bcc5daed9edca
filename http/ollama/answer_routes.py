"""Routes `POST /api/chat` and `POST /api/generate`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, JSON, LINES, described
from greenroom.http.answering.requests.current_request import request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.ollama.answer_body import Kind, Piece, answer_body
from greenroom.http.ollama.answer_formatter import AnswerFormatter
from greenroom.http.ollama.loading import load_or_unload
from greenroom.http.ollama.options import UNSUPPORTED, UNSUPPORTED_IN_GENERATE
from greenroom.http.ollama.request import parse_chat, parse_generate
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.ollama.converter import OLLAMA
from greenroom.schemas.ollama.requests import ChatRequest, GenerateRequest


def answer_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that chat and complete text."""
    routes = Blueprint("ollama answers", __name__)

    async def respond(
        kind: Kind, wire: ChatRequest | GenerateRequest, asked: InferenceRequest | None
    ) -> Response:
        if asked is None:
            reason = await load_or_unload(services.refs.pool, wire.model, wire.keep_alive)
            return json_response(answer_body(kind, wire.model, Piece(), {"done_reason": reason}))
        formatter = AnswerFormatter(kind, wire.model)
        stream = wire.stream is not False
        return await answer_request(services, [asked], formatter, stream=stream)

    @routes.post("/api/chat")
    @described(
        "Answer a chat, load a model or unload it",
        body=ChatRequest,
        converter=OLLAMA,
        media=(JSON, LINES),
        problems=(409, *ANSWERED_BY_A_MODEL),
    )
    async def chat() -> Response:
        parse = partial(parse_chat, request_id=request_id(), client=request_client())
        wire, asked = await services.read_request(ChatRequest, OLLAMA, UNSUPPORTED, parse, files=True)
        return await respond("chat", wire, asked)

    @routes.post("/api/generate")
    @described(
        "Continue a text, load a model or unload it",
        body=GenerateRequest,
        converter=OLLAMA,
        media=(JSON, LINES),
        problems=(409, *ANSWERED_BY_A_MODEL),
    )
    async def generate() -> Response:
        parse = partial(parse_generate, request_id=request_id(), client=request_client())
        wire, asked = await services.read_request(
            GenerateRequest, OLLAMA, UNSUPPORTED_IN_GENERATE, parse, files=True
        )
        return await respond("generate", wire, asked)

    return routes
