"""OpenAI's protocol as a `WireProtocol`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quart import Blueprint

from greenroom.http.answering.protocols import States, WireProtocol
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import json_bytes
from greenroom.http.encoding.problem_documents import error_members
from greenroom.http.openai.chat_routes import chat_routes
from greenroom.http.openai.completions import completion_routes
from greenroom.http.openai.embeddings import embedding_routes
from greenroom.http.openai.speech import speech_routes
from greenroom.http.openai.stored_completions import stored_completion_routes
from greenroom.http.openai.token_routes import token_routes
from greenroom.http.openai.transcription import transcription_routes
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.models.model_description import ModelDescription, model_listing


class OpenAIModelFormatter:
    """Formats a list of models or a single one; the last list is kept while nothing changes."""

    def __init__(self) -> None:
        self._last: tuple[Sequence[ModelDescription], States, bytes] = ((), {}, b"")

    def listed(self, models: Sequence[ModelDescription], states: States, query: Mapping[str, str]) -> bytes:
        """Return all models: OpenAI's list has no pages."""
        known, known_states, encoded = self._last
        if known is not models or known_states != states or not encoded:
            data = [_model(model, states) for model in models]
            encoded = json_bytes({"object": "list", "data": data})
            self._last = models, states, encoded
        return encoded

    def one(self, model: ModelDescription, states: States) -> dict[str, Any]:
        return _model(model, states)


def _model(model: ModelDescription, states: States) -> dict[str, Any]:
    """Return an entry of OpenAI's list, with `name` for clients that show it, and what else is known."""
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "name": model.id,
        **model_listing(model, states.get(model.model, ModelState.IDLE)),
    }


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
