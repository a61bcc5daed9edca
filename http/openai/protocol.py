"""OpenAI's protocol as a `WireProtocol`."""

from __future__ import annotations

from quart import Blueprint

from greenroom.http.answering.protocols.wire_protocol import WireProtocol
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.errors.openai_errors import error_members
from greenroom.http.openai.chat.chat_routes import chat_routes
from greenroom.http.openai.chat.stored_completion_routes import stored_completion_routes
from greenroom.http.openai.completions.completion_routes import completion_routes
from greenroom.http.openai.embeddings.embedding_routes import embedding_routes
from greenroom.http.openai.model_formatter import OpenAIModelFormatter
from greenroom.http.openai.speech.speech_routes import speech_routes
from greenroom.http.openai.token_routes import token_routes
from greenroom.http.openai.transcription.transcription_routes import transcription_routes


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    return (
        chat_routes(services),
        stored_completion_routes(services),
        completion_routes(services),
        speech_routes(services),
        transcription_routes(services),
        token_routes(services),
        embedding_routes(services),
    )


OPENAI_PROTOCOL: WireProtocol = WireProtocol(
    ("/v1/",), _routes, error_members, OpenAIModelFormatter(), name="openai"
)
