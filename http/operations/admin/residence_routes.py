"""Routes by which operators load, unload and pin models."""

from __future__ import annotations

import time

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.requests.default_list import acquire_first
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.requests.current_request import request_id
from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.admin.answers import LoadedModel, PinnedModel, UnloadedModel
from greenroom.schemas.admin.converter import ADMIN
from greenroom.schemas.admin.requests import ModelRequest, PinRequest, UnloadRequest
from greenroom.schemas.protocols.operator_protocol import ModelPinned, PinModel
from greenroom.schemas.protocols.pool_protocol import Acquire, ModelUnloaded, UnloadModel


def residence_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that load, unload and pin models."""
    routes = loopback_blueprint("admin residence")
    pool = services.refs.pool

    @routes.post("/admin/models/load")
    @described(
        "Load a model, and answer when it is ready",
        body=ModelRequest,
        converter=ADMIN,
        answer=LoadedModel,
        problems=ANSWERED_BY_A_MODEL,
    )
    async def load() -> Response:
        key = parse_model_key((await services.read_body(ModelRequest, ADMIN)).model)
        started = time.monotonic()
        granted = await acquire_first(pool, Acquire(key, request_id()))
        granted.close()
        seconds = round(time.monotonic() - started, 3)
        return json_response(attrs.asdict(LoadedModel(granted.lease.key.model, seconds)))

    @routes.post("/admin/models/unload")
    @described(
        "Unload a model, and answer when it has left the memory",
        body=UnloadRequest,
        converter=ADMIN,
        answer=UnloadedModel,
        problems=ANSWERED_BY_A_MODEL,
    )
    async def unload() -> Response:
        wire = await services.read_body(UnloadRequest, ADMIN)
        message = UnloadModel(parse_model_key(wire.model), now=wire.mode == "now")
        unloaded = await ask_actor(pool, message, ModelUnloaded)
        return json_response(attrs.asdict(UnloadedModel(unloaded.key.model, unloaded.freed)))

    @routes.post("/admin/models/pin")
    @described(
        "Pin a model in memory until the server ends, or no longer",
        body=PinRequest,
        converter=ADMIN,
        answer=PinnedModel,
        problems=(404,),
    )
    async def pin() -> Response:
        wire = await services.read_body(PinRequest, ADMIN)
        pinned = await ask_actor(pool, PinModel(parse_model_key(wire.model), wire.pinned), ModelPinned)
        return json_response(attrs.asdict(PinnedModel(pinned.key.model, pinned.pinned)))

    return routes
