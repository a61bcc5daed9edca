"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.schemas.openai.models import Model, Models
from greenroom.schemas.pool_protocol import FindModel, ListModels, ModelCard, ModelList, PoolMessage


def model_routes(pool: Ref[PoolMessage]) -> Blueprint:
    """Return the routes."""
    routes = Blueprint("models", __name__)

    @routes.get("/v1/models")
    async def models() -> Response:
        cards = (await ask_actor(pool, ListModels(), ModelList)).models
        return json_response(attrs.asdict(Models(tuple(map(_model, cards)))))

    @routes.get("/v1/models/<path:model>")
    async def one_model(model: str) -> Response:
        return json_response(attrs.asdict(_model(await ask_actor(pool, FindModel(model), ModelCard))))

    return routes


def _model(card: ModelCard) -> Model:
    return Model(card.id, card.created, card.owned_by)
