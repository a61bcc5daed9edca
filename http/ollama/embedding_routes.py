"""Routes `POST /api/embed` and `POST /api/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.collecting.collected_results import collect_results
from greenroom.http.answering.http_responses import json_response, large_json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.requests.current_request import request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.encoding.vectors import in_order, numbers_of, vector_json
from greenroom.http.ollama.answer_body import nanoseconds
from greenroom.http.ollama.embedding_request import parse_embed, parse_old_embeddings
from greenroom.http.ollama.loading import load_or_unload
from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.ollama.converter import OLLAMA
from greenroom.schemas.ollama.embeddings import EmbedRequest, OldEmbeddingsRequest


def embedding_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that embed texts."""
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
    """Return the response to `/api/embed`, with vectors scaled to length 1.

    Args:
        name: Model name from the request.
        vectors: Vectors in the order of their texts.
        finished: Final event; None if the model was only loaded.
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
