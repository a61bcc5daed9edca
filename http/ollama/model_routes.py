"""Routes of Ollama's model API: `/api/tags`, `/api/ps`, `/api/show`, `/api/version`; changes are refused."""

from __future__ import annotations

from quart import Blueprint, Response, request

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import described
from greenroom.http.answering.requests.allowed_models import describe_models
from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.ollama.model_body import running, shown, tagged
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.ollama.converter import OLLAMA
from greenroom.schemas.ollama.requests import ShowRequest
from greenroom.schemas.problems import Problem, ProblemError, missing
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus

API_VERSION = "0.13.0"
"""Version of Ollama whose API is implemented; clients refuse old ones."""

_FIXED = "models come from the hub, and stay as they are"
NOT_SERVED = {
    "/api/push": _FIXED,
    "/api/create": _FIXED,
    "/api/copy": (
        "a further name of a model is an `alias` or a profile (`[profiles.NAME]`) in the server's settings"
    ),
}
"""Routes of POST that are refused, and why."""


def model_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that list and describe models."""
    routes = Blueprint("ollama models", __name__)
    pool = services.refs.pool

    @routes.get("/api/version")
    @described("Show the version of Ollama that is emulated")
    async def version() -> Response:
        return json_response({"version": API_VERSION})

    @routes.get("/api/tags")
    @described("List the models")
    async def tags() -> Response:
        return json_response({"models": list(map(tagged, await describe_models(pool)))})

    @routes.get("/api/ps")
    @described("List the models in memory")
    async def loaded() -> Response:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        ready = {model.key.model: model for model in status.models if model.state is ModelState.READY}
        found = await describe_models(pool)
        listed = [running(model, ready[model.id].expires_at) for model in found if model.id in ready]
        return json_response({"models": listed})

    @routes.post("/api/show")
    @described("Describe a model", body=ShowRequest, converter=OLLAMA, problems=(404,))
    async def show() -> Response:
        _, name = await services.read_request(ShowRequest, OLLAMA, {}, _name)
        [found, *_] = await describe_models(pool, name)
        return json_response(shown(found))

    @described("Refuse to change the models", status=None, problems=(501,))
    async def refuse() -> Response:
        detail = f"`{request.path}` is not served here: {NOT_SERVED[request.path]}."
        raise ProblemError(Problem(501, "not_implemented", detail))

    for path in NOT_SERVED:
        routes.add_url_rule(path, path.removeprefix("/api/"), refuse, methods=["POST"])
    return routes


def _name(wire: ShowRequest, _: JsonObject) -> str:
    if (name := wire.model or wire.name) is None:
        raise missing("model")
    return parse_model_key(name).model
