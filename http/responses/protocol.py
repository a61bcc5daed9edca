"""The Responses API, as the application knows it; its errors are those of all of OpenAI's paths."""

from __future__ import annotations

from quart import Blueprint

from greenroom.actors.actor_refs import ActorRefs
from greenroom.http.answering.openai_errors import error_members
from greenroom.http.answering.wire_protocol import WireProtocol
from greenroom.http.responses.response_routes import response_routes


def _routes(refs: ActorRefs, status_timeout: float) -> tuple[Blueprint, ...]:
    return (response_routes(refs, status_timeout),)


RESPONSES_PROTOCOL = WireProtocol(("/v1/responses", "/v1/conversations"), _routes, error_members)
