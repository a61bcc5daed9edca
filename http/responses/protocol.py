"""Registration of the Responses API with the application."""

from __future__ import annotations

from quart import Blueprint

from greenroom.http.answering.protocols.wire_protocol import WireProtocol
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.responses.compact_routes import compact_routes
from greenroom.http.responses.conversation_routes import conversation_item_routes, conversation_routes
from greenroom.http.responses.errors import error_members
from greenroom.http.responses.history.recall import HistoryReader
from greenroom.http.responses.response_routes import response_routes
from greenroom.http.responses.stored_routes import stored_routes


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    histories = HistoryReader(services.refs.store)
    return (
        response_routes(services, histories),
        stored_routes(services),
        compact_routes(services, histories),
        conversation_routes(services, histories),
        conversation_item_routes(services, histories),
    )


RESPONSES_PROTOCOL: WireProtocol = WireProtocol(
    ("/v1/responses", "/v1/conversations"), _routes, error_members
)
