"""Routes `POST /api/embed` and `POST /api/embeddings`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.collecting.collected_results import collect_results
from greenroom.http.answering.http_responses import json_response, large_json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.requests.current_request import request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.encoding.vectors import in_order, numbers_of
from greenroom.http.ollama.embedding_body import embed_body, old_embeddings_body
from greenroom.http.ollama.embedding_request import parse_embed, parse_old_embeddings
from greenroom.http.ollama.loading import load_or_unload
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
