"""Parsing of `POST /v1/embeddings` into a protocol-independent request."""

from __future__ import annotations

from greenroom.http.answering.requests.embedding_limits import checked_embedding
from greenroom.http.answering.requests.request_parameters import parse_model_key, parse_priority
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.openai.embeddings import EmbeddingsRequest


def parse_embedding_request(
    wire: EmbeddingsRequest, body: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest:
    """Parse an embedding request into a protocol-independent one.

    Args:
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    asked = EmbeddingInput(
        wire.input.texts,
        dimensions=wire.dimensions,
        input_type=wire.input_type,
        instruction=wire.instruction,
        truncate=wire.truncate is not None and wire.truncate.cut,
    )
    key, priority = parse_model_key(wire.model), parse_priority(body)
    return InferenceRequest(request_id, key, checked_embedding(asked), client=client, priority=priority)
