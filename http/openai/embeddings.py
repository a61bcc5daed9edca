"""The route `POST /v1/embeddings`: its request, and vectors in the answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.collecting import collect_results
from greenroom.http.answering.current_request import request_client, request_id
from greenroom.http.answering.http_responses import large_json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.request_parameters import checked_embedding, parse_model_key, parse_priority
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import in_order, json_bytes, numbers_of, vector_base64, vector_json
from greenroom.schemas.events.events import Usage
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.wire.openai_chat import OPENAI
from greenroom.schemas.wire.openai_endpoints import EmbeddingsRequest


def embedding_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("embeddings", __name__)

    @routes.post("/v1/embeddings")
    @described("Embed texts", body=EmbeddingsRequest, converter=OPENAI, problems=ANSWERED_BY_A_MODEL)
    async def embeddings() -> Response:
        parse = partial(parse_embedding_request, request_id=request_id(), client=request_client())
        wire, request = await services.read_request(EmbeddingsRequest, OPENAI, {}, parse)
        results = await collect_results(services.refs.pool, request, Vector)
        vectors = in_order(results.events)
        encoding = wire.encoding_format or "float"
        usage = results.finished.usage
        return await large_json_response(
            lambda: embedding_list(results.model, vectors, usage, encoding), numbers_of(vectors)
        )

    return routes


def embedding_list(model: str, vectors: Sequence[Vector], usage: Usage, encoding_format: str) -> bytes:
    """Return the response as JSON; this is slow for many vectors, but releases the GIL between them."""
    encode = vector_base64 if encoding_format == "base64" else vector_json
    entries = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (vector.index, encode(vector))
        for vector in vectors
    )
    tokens = {"prompt_tokens": usage.prompt, "total_tokens": usage.prompt}
    tail = json_bytes({"model": model, "usage": tokens}).removeprefix(b"{")
    return b'{"object":"list","data":[%b],%b' % (entries, tail)


def parse_embedding_request(
    wire: EmbeddingsRequest, body: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest:
    """Parse an embedding request into a protocol-independent one. Raises ProblemError: 400 that names the
    offending field.
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
