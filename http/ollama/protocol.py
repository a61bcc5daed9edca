"""Ollama's protocol as a `WireProtocol`."""

from __future__ import annotations

from quart import Blueprint

from greenroom.http.answering.protocols import WireProtocol
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.ollama.answer_routes import answer_routes
from greenroom.http.ollama.embeddings import embedding_routes
from greenroom.http.ollama.models import model_routes, pull_routes
from greenroom.schemas.problems import Problem


def error_members(problem: Problem, _request_id: str | None) -> dict[str, str]:
    return {"error": problem.detail}


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    return model_routes(services), pull_routes(services), answer_routes(services), embedding_routes(services)


OLLAMA_PROTOCOL: WireProtocol = WireProtocol(
    ("/api/",), _routes, error_members, any_body_type=True, name="ollama"
)
