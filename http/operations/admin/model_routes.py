"""Routes that tell operators of the models in memory, and of the effect of a load."""

from __future__ import annotations

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import (
    described,
)
from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.http.operations.admin.answer_row import answer_row
from greenroom.schemas.admin.answers import (
    PlannedLoad,
    UsedModel,
    UsedModels,
)
from greenroom.schemas.admin.converter import ADMIN
from greenroom.schemas.admin.requests import ModelRequest
from greenroom.schemas.events.statistics import PhaseSeconds
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.protocols.operator_protocol import LoadPlan, PlanLoad
from greenroom.schemas.protocols.pool_protocol import (
    DescribeModel,
    DescribePool,
    ModelDescriptions,
    ModelStatus,
    PoolStatus,
)


def model_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that list used models and plan loads."""
    routes = loopback_blueprint("admin models")
    pool = services.refs.pool

    @routes.get("/admin/models")
    @described("List the models that were requested, with the rows of their batches", answer=UsedModels)
    async def models() -> Response:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        return json_response(attrs.asdict(UsedModels(tuple(map(_used_model, status.models)), status.limit)))

    @routes.post("/admin/models/plan")
    @described(
        "Tell the effect of a request for a model: the models that would be unloaded",
        body=ModelRequest,
        converter=ADMIN,
        answer=PlannedLoad,
        problems=(404,),
    )
    async def plan() -> Response:
        key = parse_model_key((await services.read_body(ModelRequest, ADMIN)).model)
        found = await ask_actor(pool, DescribeModel(key.model), ModelDescriptions)
        known = found.models[0]
        message = PlanLoad(key, known.need, known.problem or known.refused)
        planned = await ask_actor(pool, message, LoadPlan)
        return json_response(attrs.asdict(_planned_load(planned, known)))

    return routes


def _used_model(status: ModelStatus) -> UsedModel:
    rows = () if status.snapshot is None else status.snapshot.rows
    error = status.last_error
    phases = PhaseSeconds() if status.totals is None else status.totals.phases
    return UsedModel(
        id=status.key.model,
        state=status.state.value,
        status=status.documented_state,
        since=round(status.since, 3),
        pinned=status.pinned,
        expires_at=None if status.expires_at is None else round(status.expires_at, 3),
        load_progress=round(status.load_progress, 4),
        download=status.download,
        bytes=status.nbytes,
        running=status.running,
        waiting=status.waiting,
        leases=status.leases,
        restarts=status.restarts,
        problem=status.problem,
        last_error=None if error is None else error.detail,
        last_error_at=None if error is None else round(error.time, 3),
        prefill_seconds=round(phases.prefill, 3),
        decode_seconds=round(phases.decode, 3),
        rows=tuple(map(answer_row, rows)),
    )


def _planned_load(plan: LoadPlan, known: ModelDescription) -> PlannedLoad:
    return PlannedLoad(
        id=plan.key.model,
        folder=known.folder,
        outcome=plan.outcome,
        unload=tuple(key.model for key in plan.unload),
        pause=tuple(key.model for key in plan.pause),
        required_bytes=plan.required,
        least_bytes=plan.least,
        limit_bytes=plan.limit,
        available_bytes=plan.available,
        reason=None if plan.problem is None else plan.problem.detail,
        notices=known.notices,
    )
