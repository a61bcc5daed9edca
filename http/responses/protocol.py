"""Registration of the Responses API with the application."""

from __future__ import annotations

from typing import Any

import attrs
from quart import Blueprint

from greenroom.http.answering.protocols import WireProtocol
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding import problem_documents
from greenroom.http.responses.conversation_routes import conversation_item_routes, conversation_routes
from greenroom.http.responses.history_reader import HistoryReader
from greenroom.http.responses.mcp_tools import mcp_server_routes
from greenroom.http.responses.response_routes import compact_routes, response_routes, stored_routes
from greenroom.schemas.problems import Problem


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    histories = HistoryReader(services.refs.store)
    return (
        response_routes(services, histories),
        stored_routes(services),
        compact_routes(services, histories),
        conversation_routes(services, histories),
        conversation_item_routes(services, histories),
        mcp_server_routes(services),
    )


def error_members(problem: Problem, request_id: str | None) -> dict[str, Any]:
    """Return the members of an error document: OpenAI's, with `input` in place of `messages`."""
    if problem.param == "messages" and problem.code != "invalid_value":
        # Checks after parsing know only messages, not items.
        problem = attrs.evolve(problem, param="input")
    return problem_documents.error_members(problem, request_id)


RESPONSES_PROTOCOL: WireProtocol = WireProtocol(
    ("/v1/responses", "/v1/conversations"), _routes, error_members, name="responses"
)
