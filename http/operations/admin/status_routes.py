"""`GET /admin/status`: the state of the whole server, for operators."""

from __future__ import annotations

import os
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import attrs
from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.store.database.database_file import MEMORY
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import FOR_OPERATORS, described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.admin.answers import ServerStatus
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.protocols.store_protocol import DescribeStore, StoreStatus


def status_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the route that shows the server's state."""
    routes = loopback_blueprint("admin status")
    started, refs, settings = time.monotonic(), services.refs, services.settings

    @routes.get("/admin/status")
    @described("Show the state of the server", answer=ServerStatus, problems=FOR_OPERATORS)
    async def status() -> Response:
        pool = await ask_actor(refs.pool, DescribePool(), PoolStatus)
        store = await ask_actor(refs.store, DescribeStore(), StoreStatus)
        problems = tuple(_problems(pool, store))
        uptime = time.monotonic() - started
        models = pool.models
        answer = ServerStatus(
            status="draining" if pool.draining else "degraded" if problems else "ok",
            problems=problems,
            version=version("greenroom"),
            pid=os.getpid(),
            started_at=round(time.time() - uptime, 3),
            uptime=round(uptime, 3),
            models=dict(Counter(model.state.value for model in models)),
            running=sum(model.running for model in models),
            waiting=sum(model.waiting for model in models),
            model_bytes=sum(model.nbytes for model in models),
            memory_limit=pool.limit,
            database=_path(settings.db),
            audit=refs.audit is not None,
            inspector=refs.inspector is not None,
        )
        return json_response(attrs.asdict(answer))

    return routes


def _path(database: str | None) -> str | None:
    return None if database in (None, MEMORY) else str(Path(str(database)).expanduser().resolve())


def _problems(pool: PoolStatus, store: StoreStatus) -> list[str]:
    found = [pool.draining.detail] if pool.draining else []
    for model in pool.models:
        if not model.responds:
            found.append(f"{model.key} gives no sign of life.")
        elif model.hung_threads:
            found.append(f"{model.hung_threads} threads of {model.key} hang.")
        if model.problem is not None:
            found.append(f"{model.key}: {model.problem}")
    if store.problem is not None:
        found.append(store.problem)
    if store.hung_threads:
        found.append(f"{store.hung_threads} threads of the database hang.")
    return found
