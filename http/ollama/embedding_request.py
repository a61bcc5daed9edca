"""Parsing of `POST /api/embed` and the older `POST /api/embeddings` into a protocol-independent request."""

from __future__ import annotations

from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.ollama.keep_alive import parse_keep_alive
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.ollama.embeddings import EmbedRequest, OldEmbeddingsRequest


def parse_embed(
    wire: EmbedRequest, _: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Parse an embedding request; return None if it only loads or unloads the model.

    Args:
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if wire.input is None or not wire.input.texts:
        return None
    # Ollama truncates by default, and takes 0 dimensions as all of them.
    asked = EmbeddingInput(
        wire.input.texts, dimensions=wire.dimensions or None, truncate=wire.truncate is not False
    )
    keep_alive = parse_keep_alive(wire.keep_alive)
    return InferenceRequest(
        request_id, parse_model_key(wire.model), asked, client=client, keep_alive=keep_alive
    )


def parse_old_embeddings(
    wire: OldEmbeddingsRequest, _: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Parse a request for one vector; return None if it only loads or unloads the model.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if not wire.prompt:
        return None
    asked = EmbeddingInput((wire.prompt,), truncate=True, param="prompt")
    keep_alive = parse_keep_alive(wire.keep_alive)
    return InferenceRequest(
        request_id, parse_model_key(wire.model), asked, client=client, keep_alive=keep_alive
    )
