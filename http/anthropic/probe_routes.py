"""Auxiliary routes of Anthropic's clients: a health probe, and batches, which are refused."""

from __future__ import annotations

from quart import Blueprint, Response

from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import described
from greenroom.schemas.problems import Problem, ProblemError


def probe_routes() -> Blueprint:
    """Return the blueprint of the routes that Anthropic's clients probe."""
    routes = Blueprint("probes", __name__)

    @routes.get("/api/hello")
    @described("Greet a client that tests the connection")
    async def hello() -> Response:
        return json_response({"message": "hello"})

    @routes.route("/v1/messages/batches", defaults={"_path": ""}, methods=["GET", "POST"])
    @routes.route("/v1/messages/batches/<path:_path>", methods=["GET", "POST", "DELETE"])
    @described("Refuse batches", status=None, problems=(501,))
    async def batches(_path: str) -> Response:
        detail = "Batches are not served here: send their requests to /v1/messages, many at once if you like."
        raise ProblemError(Problem(501, "batches_not_supported", detail))

    return routes
