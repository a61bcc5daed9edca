"""The route `POST /v1/embeddings`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.collecting.collected_results import collect_results
from greenroom.http.answering.http_responses import large_json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.requests.current_request import request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.encoding.vectors import in_order, numbers_of
from greenroom.http.openai.embeddings.embedding_formatter import embedding_list
from greenroom.http.openai.embeddings.embedding_request import parse_embedding_request
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.openai.embeddings import EmbeddingsRequest


def embedding_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that embeds texts."""
    routes = Blueprint("embeddings", __name__)

    @routes.post("/v1/embeddings")
    @described("Embed texts", body=EmbeddingsRequest, converter=OPENAI, problems=ANSWERED_BY_A_MODEL)
    async def embeddings() -> Response:
        parse = partial(parse_embedding_request, request_id=request_id(), client=request_client())
        wire, request = await services.read_request(EmbeddingsRequest, OPENAI, {}, parse)
        results = await collect_results(services.refs.pool, request, Vector)
        vectors = in_order(results.events)
        encoding = "float" if wire.encoding_format is None else wire.encoding_format.name
        usage = results.finished.usage
        return await large_json_response(
            lambda: embedding_list(results.model, vectors, usage, encoding), numbers_of(vectors)
        )

    return routes
