"""`GET /openapi.json`: all routes of the server, for programs that make clients or test servers."""

from __future__ import annotations

from functools import cache

from quart import Blueprint, Response
from quart_trio import QuartTrio

from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import described
from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.operations.openapi.document import openapi_document


def openapi_routes(app: QuartTrio) -> Blueprint:
    """Return the blueprint of the route that serves the OpenAPI document."""
    routes = Blueprint("openapi", __name__)
    document = cache(lambda: json_bytes(openapi_document(app)))

    @routes.get("/openapi.json")
    @described("Describe all routes")
    async def openapi() -> Response:
        return json_response(document())

    return routes
