"""The rerank protocol of Cohere's, Jina's and vLLM's clients as a `WireProtocol`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quart import Blueprint

from greenroom.http.answering.protocols import WireProtocol
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.problem_documents import error_members
from greenroom.http.rerank.rerank import rank_routes
from greenroom.schemas.problems import Problem


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    return (rank_routes(services),)


def _error_members(problem: Problem, request_id: str | None) -> Mapping[str, Any]:
    return {"message": problem.detail, **error_members(problem, request_id)}


RERANK_PROTOCOL = WireProtocol(
    ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score"), _routes, _error_members, name="rerank"
)
