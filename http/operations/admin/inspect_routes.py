"""`GET /admin/inspect`: the last requests with their prompts and answers, for debugging."""

from __future__ import annotations

from typing import Any

import attrs
from quart import Blueprint, Response, request

from greenroom.actors.inspection.inspector import Inspection, inspection_body, inspection_summary
from greenroom.http.answering.explanation_body import explanation_body
from greenroom.http.answering.http_responses import json_response, stored_json_response
from greenroom.http.answering.protocols.route_description import FOR_OPERATORS, described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.problems import Problem, ProblemError


@attrs.frozen
class InspectQuery:
    """The parameters of the URL's query.

    Args:
        id: Id or number of a request, to show all of it; without it, all requests are listed.
    """

    id: str | None = None


def inspect_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that shows the last requests."""
    routes = loopback_blueprint("admin inspect")
    inspector = services.refs.inspector

    @routes.get("/admin/inspect")
    @described(
        "Show the last requests with prompts and answers", query=InspectQuery, problems=(*FOR_OPERATORS, 404)
    )
    async def inspect() -> Response:
        if inspector is None:
            detail = "The server keeps no requests to inspect: start it with --inspect N."
            raise ProblemError(Problem(404, "inspector_off", detail))
        name = request.args.get("id")
        if name is None:
            listed = [inspection_summary(record) for record in inspector.listed()]
            return _unstored(
                json_response({"requests": listed, "nbytes": inspector.nbytes, "limit": inspector.budget})
            )
        record = inspector.find(name)
        if record is None:
            detail = f"The inspector has no request '{name[:100]}'; it keeps only the latest."
            raise ProblemError(Problem(404, "request_not_found", detail, "id"))
        return _unstored(
            await stored_json_response(
                services.answers, 2 * record.nbytes, lambda: json_bytes(_whole(record))
            )
        )

    return routes


def _whole(record: Inspection) -> dict[str, Any]:
    explanation = None if record.explanation is None else explanation_body(record.explanation)
    return {**inspection_body(record), "explanation": explanation}


def _unstored(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response
