"""From the wire to the neutral request: `POST /v1/embeddings`."""

from __future__ import annotations

from greenroom.http.answering.request_parameters import parse_model_key
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.openai.embeddings import EmbeddingsRequest
from greenroom.schemas.problems import invalid
from greenroom.schemas.requests import EmbeddingInput, InferenceRequest

MAX_INSTRUCTION = 16_384
"""Characters: it stands before every text of the request."""


def parse_embedding_request(
    wire: EmbeddingsRequest, _: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest:
    """Return the request of a client in neutral words.

    Args:
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if wire.instruction is not None and len(wire.instruction) > MAX_INSTRUCTION:
        detail = f"`instruction` has {len(wire.instruction)} characters, but may have {MAX_INSTRUCTION}."
        raise invalid(detail, "instruction")
    asked = EmbeddingInput(
        wire.input.texts,
        dimensions=wire.dimensions,
        input_type=wire.input_type,
        instruction=wire.instruction,
        truncate=wire.truncate is not None and wire.truncate.cut,
    )
    return InferenceRequest(request_id, parse_model_key(wire.model), asked, client=client)
