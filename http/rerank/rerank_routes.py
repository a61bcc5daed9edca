"""Routes `POST /v1/rerank`, `/v2/rerank` and `/v1/score`."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from greenroom.http.answering.collecting.collected_results import collect_results
from greenroom.http.answering.http_responses import LARGE, large_json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.requests.current_request import answer_id, request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.rerank.rerank_formatter import CohereVersion, format_rerank, format_scores
from greenroom.http.rerank.rerank_request import (
    UNSUPPORTED_IN_RERANK,
    UNSUPPORTED_IN_SCORE,
    parse_rerank_request,
    parse_score_request,
)
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.rerank.converter import RERANK_CONVERTER
from greenroom.schemas.rerank.rerank import RerankRequest
from greenroom.schemas.rerank.score import ScoreRequest


def rank_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that rank and score texts."""
    routes = Blueprint("ranking", __name__)

    @described("Rank documents", body=RerankRequest, converter=RERANK_CONVERTER, problems=ANSWERED_BY_A_MODEL)
    async def rerank(version: CohereVersion) -> Response:
        parse = partial(parse_rerank_request, request_id=request_id(), client=request_client())
        wire, request = await services.read_request(
            RerankRequest, RERANK_CONVERTER, UNSUPPORTED_IN_RERANK, parse
        )
        found = await collect_results(services.refs.pool, request, Score)
        answer = partial(format_rerank, wire, answer_id("rerank-"), version, found)
        return await large_json_response(answer, LARGE if wire.return_documents else len(found.events))

    @described(
        "Score pairs of texts", body=ScoreRequest, converter=RERANK_CONVERTER, problems=ANSWERED_BY_A_MODEL
    )
    async def score() -> Response:
        parse = partial(parse_score_request, request_id=request_id(), client=request_client())
        _, request = await services.read_request(ScoreRequest, RERANK_CONVERTER, UNSUPPORTED_IN_SCORE, parse)
        found = await collect_results(services.refs.pool, request, Score)
        return await large_json_response(
            partial(format_scores, answer_id("score-"), found), len(found.events)
        )

    for path, answer in (
        ("/v1/rerank", partial(rerank, "1")),
        ("/v2/rerank", partial(rerank, "2")),
        ("/rerank", partial(rerank, "1")),
        ("/v1/score", score),
        ("/score", score),
    ):
        routes.add_url_rule(path, path.replace("/", " ").strip(), answer, methods=["POST"])
    return routes
