"""`GET /v1/models` and `GET /v1/models/{id}`, answered in the protocol of each client."""

from __future__ import annotations

from collections.abc import Sequence

from quart import Blueprint, Response, request

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import described
from greenroom.http.answering.protocols.wire_protocol import ModelFormatter, WireProtocol, protocol_of
from greenroom.http.answering.requests.allowed_models import describe_models
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolMessage, PoolStatus


def model_routes(pool: Ref[PoolMessage], protocols: Sequence[WireProtocol]) -> Blueprint:
    """Return the blueprint of the routes that list models.

    Args:
        protocols: Protocols to answer in; at least one of them lists models.
    """
    routes = Blueprint("models", __name__)

    def formatter() -> ModelFormatter:
        asked = protocol_of(request.path, request.headers, protocols)
        return next(protocol.models for protocol in (asked, *protocols) if protocol.models is not None)

    async def states() -> dict[str, ModelState]:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        return {model.key.model: model.state for model in status.models}

    @routes.get("/v1/models")
    @described("List the models, in the format of the client's protocol")
    async def models() -> Response:
        found = await describe_models(pool)
        return json_response(formatter().listed(found, await states(), request.args.to_dict()))

    @routes.get("/v1/models/<path:model>")
    @described("Describe a model; its id may contain slashes", problems=(404,))
    async def one_model(model: str) -> Response:
        [found, *_] = await describe_models(pool, model)
        return json_response(formatter().one(found, await states()))

    return routes
