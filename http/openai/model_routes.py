"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from difflib import get_close_matches

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.schemas.openai.models import Model, Models
from greenroom.schemas.pool_protocol import ListModels, ModelList, PoolMessage
from greenroom.schemas.problems import ProblemError, model_not_found


def model_routes(pool: Ref[PoolMessage]) -> Blueprint:
    """Return the routes."""
    routes = Blueprint("models", __name__)

    async def list_models() -> tuple[Model, ...]:
        cards = (await ask_actor(pool, ListModels(), ModelList)).models
        return tuple(Model(card.id, card.created, card.owned_by) for card in cards)

    @routes.get("/v1/models")
    async def models() -> Response:
        return json_response(attrs.asdict(Models(await list_models())))

    @routes.get("/v1/models/<path:model>")
    async def one_model(model: str) -> Response:
        served = {entry.id: entry for entry in await list_models()}
        if model == "default" and served:
            model = next(iter(served))
        if model not in served:
            raise ProblemError(model_not_found(model[:200], tuple(get_close_matches(model, served))))
        return json_response(attrs.asdict(served[model]))

    return routes
