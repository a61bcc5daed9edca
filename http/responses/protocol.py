"""Registration of the Responses API with the application."""

from __future__ import annotations

from quart import Blueprint

from greenroom.actors.actor_refs import ActorRefs
from greenroom.http.answering.protocols.wire_protocol import WireProtocol
from greenroom.http.responses.compact_routes import compact_routes
from greenroom.http.responses.conversation_routes import conversation_item_routes, conversation_routes
from greenroom.http.responses.errors import error_members
from greenroom.http.responses.response_routes import response_routes
from greenroom.http.responses.stored_routes import stored_routes


def _routes(refs: ActorRefs, status_timeout: float) -> tuple[Blueprint, ...]:
    return (
        response_routes(refs, status_timeout),
        stored_routes(refs),
        compact_routes(refs),
        conversation_routes(refs),
        conversation_item_routes(refs),
    )


RESPONSES_PROTOCOL: WireProtocol = WireProtocol(
    ("/v1/responses", "/v1/conversations"), _routes, error_members
)
