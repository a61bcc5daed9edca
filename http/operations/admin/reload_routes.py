"""`POST /admin/reload`: changed settings, taken in without a restart."""

from __future__ import annotations

import attrs
from quart import Blueprint, Response

from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import FOR_OPERATORS, described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.admin.answers import Reloaded
from greenroom.schemas.problems import Problem, ProblemError


def reload_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that reloads the settings."""
    routes = loopback_blueprint("admin reload")

    @routes.post("/admin/reload")
    @described("Take in changed settings", answer=Reloaded, problems=(*FOR_OPERATORS, 501))
    async def reload() -> Response:
        if services.reload is None:
            detail = "This server was started by a program that gave it its settings: there are none to read."
            raise ProblemError(Problem(501, "reload_unavailable", detail))
        return json_response(attrs.asdict(await services.reload()))

    return routes
