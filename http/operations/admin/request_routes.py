"""`/admin/requests`: the requests in flight, and their cancellation."""

from __future__ import annotations

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.http.operations.admin.answer_row import answer_row
from greenroom.schemas.admin.answers import CancelledRequest, RequestInFlight, RequestsInFlight
from greenroom.schemas.events.statistics import RowStatistics
from greenroom.schemas.protocols.operator_protocol import (
    CancelRequest,
    ListRequests,
    RequestCancelled,
    RequestStatus,
    RequestStatuses,
)
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus


def request_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that list and cancel requests."""
    routes = loopback_blueprint("admin requests")
    pool = services.refs.pool

    @routes.get("/admin/requests")
    @described("List the requests that wait for a model or use one", answer=RequestsInFlight)
    async def requests() -> Response:
        found = await ask_actor(pool, ListRequests(), RequestStatuses)
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        rows = [row for model in status.models if model.snapshot is not None for row in model.snapshot.rows]
        listed = tuple(_in_flight(request, rows) for request in found.requests)
        return json_response(attrs.asdict(RequestsInFlight(listed)))

    @routes.post("/admin/requests/<ident>/cancel")
    @described(
        "Cancel a request, which fails with `request_cancelled`", answer=CancelledRequest, problems=(404,)
    )
    async def cancel(ident: str) -> Response:
        cancelled = await ask_actor(pool, CancelRequest(ident), RequestCancelled)
        return json_response(attrs.asdict(CancelledRequest(cancelled.id, cancelled.count)))

    return routes


def _in_flight(request: RequestStatus, rows: list[RowStatistics]) -> RequestInFlight:
    own = tuple(answer_row(row) for row in rows if row.request_id == request.id)
    return RequestInFlight(
        id=request.id,
        model=request.key.model,
        state=request.state,
        choices=request.slots,
        priority=request.priority,
        seconds=request.seconds,
        rows=own if request.state == "running" else (),
    )
