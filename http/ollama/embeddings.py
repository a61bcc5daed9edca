"""Routes `POST /api/embed` and `POST /api/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.collecting import collect_results
from greenroom.http.answering.current_request import request_client, request_id
from greenroom.http.answering.http_responses import json_response, large_json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.request_parameters import parse_model_key
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import in_order, json_bytes, numbers_of, vector_json
from greenroom.http.ollama.answer_routes import nanoseconds
from greenroom.http.ollama.request import load_or_unload, parse_keep_alive
from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.wire.ollama import OLLAMA, EmbedRequest, OldEmbeddingsRequest


def embedding_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("ollama embeddings", __name__)
    pool = services.refs.pool

    @routes.post("/api/embed")
    @described("Embed texts", body=EmbedRequest, converter=OLLAMA, problems=(409, *ANSWERED_BY_A_MODEL))
    async def embed() -> Response:
        parse = partial(parse_embed, request_id=request_id(), client=request_client())
        wire, asked = await services.read_request(EmbedRequest, OLLAMA, {}, parse)
        if asked is None:
            await load_or_unload(pool, wire.model, wire.keep_alive)
            return json_response(embed_body(wire.model, (), None))
        results = await collect_results(pool, asked, Vector)
        vectors, finished = in_order(results.events), results.finished
        return await large_json_response(
            lambda: embed_body(wire.model, vectors, finished), numbers_of(vectors)
        )

    @routes.post("/api/embeddings")
    @described(
        "Embed a text", body=OldEmbeddingsRequest, converter=OLLAMA, problems=(409, *ANSWERED_BY_A_MODEL)
    )
    async def embeddings() -> Response:
        parse = partial(parse_old_embeddings, request_id=request_id(), client=request_client())
        wire, asked = await services.read_request(OldEmbeddingsRequest, OLLAMA, {}, parse)
        if asked is None:
            await load_or_unload(pool, wire.model, wire.keep_alive)
            return json_response(old_embeddings_body(()))
        results = await collect_results(pool, asked, Vector)
        return json_response(old_embeddings_body(results.events))

    return routes


def embed_body(name: str, vectors: Sequence[Vector], finished: Finished | None) -> bytes:
    """Return the response to `/api/embed`, with vectors scaled to length 1. `finished`: final event; None if
    the model was only loaded.
    """
    head = json_bytes({"model": name}).removesuffix(b"}")
    embeddings = b",".join(vector_json(vector, unit=True) for vector in vectors)
    ending = {} if finished is None else _ending(finished)
    tail = json_bytes(ending).removeprefix(b"{")
    return b'%b,"embeddings":[%b]%b%b' % (head, embeddings, b"," if ending else b"", tail)


def old_embeddings_body(vectors: Sequence[Vector]) -> bytes:
    """Return the response to `/api/embeddings`: the vector unscaled, or an empty one for an empty text."""
    return b'{"embedding":%b}' % (vector_json(vectors[0]) if vectors else b"[]")


def _ending(finished: Finished) -> dict[str, int]:
    timing = finished.timing
    return {
        "total_duration": nanoseconds(timing.queued + timing.prefill),
        "load_duration": nanoseconds(timing.queued),
        "prompt_eval_count": finished.usage.prompt,
    }


def parse_embed(
    wire: EmbedRequest, _: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Parse an embedding request; return None if it only loads or unloads the model. Raises ProblemError: 400
    that names the offending field.
    """
    if wire.input is None or not wire.input.texts:
        return None
    # Ollama truncates by default, and takes 0 dimensions as all of them.
    asked = EmbeddingInput(
        wire.input.texts, dimensions=wire.dimensions or None, truncate=wire.truncate is not False
    )
    return _request(wire, asked, request_id, client)


def parse_old_embeddings(
    wire: OldEmbeddingsRequest, _: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Parse a request for one vector; return None if it only loads or unloads the model. Raises ProblemError:
    400 that names the offending field.
    """
    if not wire.prompt:
        return None
    return _request(wire, EmbeddingInput((wire.prompt,), truncate=True, param="prompt"), request_id, client)


def _request(
    wire: EmbedRequest | OldEmbeddingsRequest, asked: EmbeddingInput, request_id: str, client: str
) -> InferenceRequest:
    key, keep_alive = parse_model_key(wire.model), parse_keep_alive(wire.keep_alive)
    return InferenceRequest(request_id, key, asked, client=client, keep_alive=keep_alive)
