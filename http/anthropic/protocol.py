"""Anthropic's protocol as a `WireProtocol`."""

from __future__ import annotations

from quart import Blueprint

from greenroom.http.answering.protocols.wire_protocol import WireProtocol
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.anthropic.message_routes import message_routes
from greenroom.http.anthropic.models.model_formatter import AnthropicModelFormatter
from greenroom.http.anthropic.output.errors import error_members
from greenroom.http.anthropic.probe_routes import probe_routes


def _routes(services: RouteServices) -> tuple[Blueprint, ...]:
    return message_routes(services), probe_routes()


ANTHROPIC_PROTOCOL: WireProtocol = WireProtocol(
    ("/v1/messages", "/api/hello"),
    _routes,
    error_members,
    AnthropicModelFormatter(),
    mark="anthropic-version",
    name="anthropic",
)
