"""From the wire to the neutral request: `POST /api/embed` and the older `POST /api/embeddings`."""

from __future__ import annotations

from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.ollama.request import check_loading
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.ollama.embeddings import EmbedRequest, OldEmbeddingsRequest


def parse_embed(
    wire: EmbedRequest, _: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Return the request in neutral words; None if it only asks for the model to be loaded.

    Args:
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if wire.input is None or not wire.input.texts:
        check_loading(wire.keep_alive)
        return None
    # Ollama's own default is to cut; a count of 0 asks for all dimensions there.
    asked = EmbeddingInput(
        wire.input.texts, dimensions=wire.dimensions or None, truncate=wire.truncate is not False
    )
    return InferenceRequest(request_id, parse_model_key(wire.model), asked, client=client)


def parse_old_embeddings(
    wire: OldEmbeddingsRequest, _: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Return the request for one vector; None if it only asks for the model to be loaded.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if not wire.prompt:
        check_loading(wire.keep_alive)
        return None
    asked = EmbeddingInput((wire.prompt,), truncate=True, param="prompt")
    return InferenceRequest(request_id, parse_model_key(wire.model), asked, client=client)
