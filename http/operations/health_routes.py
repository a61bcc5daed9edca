"""Health routes: liveness (`/health`, `/livez`) and readiness (`/readyz`)."""

from __future__ import annotations

import os

import attrs
from quart import Blueprint, Response

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import described
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.protocols.store_protocol import DescribeStore, StoreStatus


def health_routes(refs: ActorRefs) -> Blueprint:
    routes = Blueprint("health", __name__)

    @routes.get("/health")
    @described("Say that the process lives, and its id")
    async def health() -> Response:
        return json_response({"status": "ok", "pid": os.getpid()})

    @routes.get("/livez")
    @described("Say that the process lives")
    async def live() -> Response:
        return json_response({"status": "ok"})

    @routes.get("/readyz")
    @described("Say whether the server takes requests", problems=(503,))
    async def ready() -> Response:
        status = await ask_actor(refs.pool, DescribePool(), PoolStatus)
        if not status.ready:
            if status.draining is not None:
                raise ProblemError(attrs.evolve(status.draining, code="not_ready"))
            silent = [str(model.key) for model in status.models if not model.responds]
            stopped = f"these models give no sign of life: {', '.join(silent)}"
            raise ProblemError(
                Problem(503, "not_ready", f"The server takes no requests: {stopped}.", None, 5)
            )
        hung = {str(model.key): model.hung_threads for model in status.models if model.hung_threads}
        store = await ask_actor(refs.store, DescribeStore(), StoreStatus)
        if store.hung_threads:
            hung["store"] = store.hung_threads
        degraded = {name: what for name, what in (("hung_threads", hung), ("store", store.problem)) if what}
        return json_response({"status": "degraded" if degraded else "ok", **degraded})

    return routes
