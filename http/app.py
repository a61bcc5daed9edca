"""The Quart-Trio application: which function answers which path, and what holds for all of them."""

from __future__ import annotations

from quart import Response, request
from quart_trio import QuartTrio

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.answering import request_id
from greenroom.http.answering.problem_documents import answer_errors
from greenroom.http.answering.response_timing import PATIENCE
from greenroom.http.guard.host_guard import HostGuard
from greenroom.http.openai.chat_routes import chat_routes
from greenroom.http.openai.completion_routes import completion_routes
from greenroom.http.openai.model_routes import model_routes
from greenroom.http.operations.health_routes import health_routes
from greenroom.http.transport.connection import new_request_id
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.model_protocol import PoolMessage
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings import Settings

BODY_TIMEOUT = 60
"""Seconds in which a body must arrive."""


def create_app(pool: Ref[PoolMessage], settings: Settings, *, patience: float = PATIENCE) -> QuartTrio:
    """An application that turns HTTP requests into messages to the pool.

    Args:
        patience: Seconds that a client waits for its status at most; then a stream opens.
    """
    app = QuartTrio(__name__, static_folder=None)
    app.asgi_http_class = RequestConnection
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.config["BODY_TIMEOUT"] = BODY_TIMEOUT
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = False
    answer_errors(app, request_id)
    _guard(app, HostGuard(settings))
    app.register_blueprint(health_routes(pool))
    app.register_blueprint(model_routes(pool))
    app.register_blueprint(chat_routes(pool, patience))
    app.register_blueprint(completion_routes(pool, patience))
    return app


def _guard(app: QuartTrio, gatekeeper: HostGuard) -> None:
    async def check() -> Response | None:
        request.scope["state"]["request_id"] = new_request_id()
        refusal = gatekeeper.refuses(request.method, request.headers)
        if refusal is not None:
            raise ProblemError(refusal)
        if request.method == "OPTIONS":
            if "Origin" in request.headers:
                return Response(status=204, headers=gatekeeper.preflight(request.headers))
        elif request.routing_exception is None and request.method in ("POST", "PUT", "PATCH"):
            refusal = gatekeeper.refuses_body(request.mimetype, request.headers)
            if refusal is not None:
                raise ProblemError(refusal)
        return None

    async def sign(response: Response) -> Response:
        response.headers["x-request-id"] = request_id()
        response.headers["x-content-type-options"] = "nosniff"
        origin = request.headers.get("Origin")
        if origin is not None and gatekeeper.allows_origin(origin):
            response.headers.update(gatekeeper.grants(origin))
        return response

    app.before_request(check)
    app.after_request(sign)
