"""Anthropic's protocol as a `WireProtocol`."""

from __future__ import annotations

from quart import Blueprint

from greenroom.http.answering.protocols import WireProtocol
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.anthropic.message_routes import message_routes, probe_routes
from greenroom.http.anthropic.message_stream import error_members
from greenroom.http.anthropic.models import AnthropicModelFormatter


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
