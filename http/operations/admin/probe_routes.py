"""`POST /admin/models/probe`: a probe of a model by the running server."""

from __future__ import annotations

from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import (
    ANSWERED_BY_A_MODEL,
    EVENTS,
    JSON,
    described,
)
from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.progress_stream import progress_response
from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.http.operations.admin.event_body import named_event
from greenroom.schemas.admin.converter import ADMIN
from greenroom.schemas.admin.requests import ProbeRequest
from greenroom.schemas.events.events import Failed
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.probed_findings import findings_of
from greenroom.schemas.problems import invalid
from greenroom.schemas.protocols.probe_protocol import Probed, ProbeModel, ProbeProgress


def probe_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that probes a model."""
    routes = loopback_blueprint("admin probes")
    pool = services.refs.pool

    @routes.post("/admin/models/probe")
    @described(
        "Ask a model what it can do, and store the findings",
        body=ProbeRequest,
        converter=ADMIN,
        media=(JSON, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def probe() -> Response:
        wire, message = await services.read_request(ProbeRequest, ADMIN, {}, _parse)
        if not wire.stream:
            return json_response(findings_of((await ask_actor(pool, message, Probed)).record))
        return await progress_response(pool, message, _event, SERVER_SENT_EVENTS)

    return routes


def _parse(wire: ProbeRequest, _: JsonObject) -> ProbeModel:
    if wire.max_tokens is not None and wire.max_tokens < 1:
        raise invalid("`max_tokens` must be at least 1.", "max_tokens")
    return ProbeModel(parse_model_key(wire.model).model, wire.max_tokens)


def _event(event: ProbeProgress | Probed | Failed) -> bytes:
    match event:
        case ProbeProgress(answered, questions):
            return named_event("progress", {"answered": answered, "questions": questions})
        case Probed(record):
            return named_event("findings", findings_of(record))
        case Failed(problem):
            told = {"status": problem.status, "code": problem.code, "detail": problem.detail}
            return named_event("error", told)
