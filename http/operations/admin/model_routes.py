"""`/admin/models`: the models in memory; load, unload, pin and plan."""

from __future__ import annotations

import time

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.requests.default_list import acquire_first
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import (
    ANSWERED_BY_A_MODEL,
    described,
)
from greenroom.http.answering.requests.current_request import request_id
from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.admin.answers import (
    AnswerRow,
    LoadedModel,
    PinnedModel,
    PlannedLoad,
    UnloadedModel,
    UsedModel,
    UsedModels,
)
from greenroom.schemas.admin.converter import ADMIN
from greenroom.schemas.admin.requests import ModelRequest, PinRequest, UnloadRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.protocols.operator_protocol import LoadPlan, ModelPinned, PinModel, PlanLoad
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    DescribeModel,
    DescribePool,
    ModelDescriptions,
    ModelStatus,
    ModelUnloaded,
    PoolStatus,
    UnloadModel,
)


def model_routes(services: RouteServices) -> Blueprint:
    """Return the routes."""
    routes = loopback_blueprint("admin models")
    pool = services.refs.pool

    async def read(
        wire_type: type[ModelRequest | UnloadRequest | PinRequest],
    ) -> tuple[ModelRequest | UnloadRequest | PinRequest, ModelKey]:
        return await services.read_request(wire_type, ADMIN, {}, lambda wire, _: parse_model_key(wire.model))

    @routes.get("/admin/models")
    @described("List the models that were requested, with the rows of their batches", answer=UsedModels)
    async def models() -> Response:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        return json_response(attrs.asdict(UsedModels(tuple(map(_used_model, status.models)))))

    @routes.post("/admin/models/load")
    @described(
        "Load a model, and answer when it is ready",
        body=ModelRequest,
        converter=ADMIN,
        answer=LoadedModel,
        problems=ANSWERED_BY_A_MODEL,
    )
    async def load() -> Response:
        _, key = await read(ModelRequest)
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
        wire, key = await read(UnloadRequest)
        now = isinstance(wire, UnloadRequest) and wire.mode == "now"
        unloaded = await ask_actor(pool, UnloadModel(key, now=now), ModelUnloaded)
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
        wire, key = await read(PinRequest)
        message = PinModel(key, not isinstance(wire, PinRequest) or wire.pinned)
        pinned = await ask_actor(pool, message, ModelPinned)
        return json_response(attrs.asdict(PinnedModel(pinned.key.model, pinned.pinned)))

    @routes.post("/admin/models/plan")
    @described(
        "Tell the effect of a request for a model: the models that would be unloaded",
        body=ModelRequest,
        converter=ADMIN,
        answer=PlannedLoad,
        problems=(404,),
    )
    async def plan() -> Response:
        _, key = await read(ModelRequest)
        found = await ask_actor(pool, DescribeModel(key.model), ModelDescriptions)
        known = found.models[0]
        planned = await ask_actor(pool, PlanLoad(key, known.need), LoadPlan)
        return json_response(attrs.asdict(_planned_load(planned, known.folder)))

    return routes


def _used_model(status: ModelStatus) -> UsedModel:
    rows = () if status.snapshot is None else status.snapshot.rows
    error = status.last_error
    return UsedModel(
        id=status.key.model,
        state=status.state.value,
        since=round(status.since, 3),
        pinned=status.pinned,
        expires_at=None if status.expires_at is None else round(status.expires_at, 3),
        load_progress=round(status.load_progress, 4),
        download=status.download,
        bytes=status.nbytes,
        running=status.running,
        waiting=status.waiting,
        restarts=status.restarts,
        problem=status.problem,
        last_error=None if error is None else error.detail,
        rows=tuple(AnswerRow(**attrs.asdict(row)) for row in rows),
    )


def _planned_load(plan: LoadPlan, folder: str | None) -> PlannedLoad:
    return PlannedLoad(
        id=plan.key.model,
        folder=folder,
        outcome=plan.outcome,
        unload=tuple(key.model for key in plan.unload),
        pause=tuple(key.model for key in plan.pause),
        required_bytes=plan.required,
        least_bytes=plan.least,
        limit_bytes=plan.limit,
        available_bytes=plan.available,
        reason=None if plan.problem is None else plan.problem.detail,
    )
