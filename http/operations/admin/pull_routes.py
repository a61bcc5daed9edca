"""Routes for operators that fetch models from the hub, search it, and delete models."""

from __future__ import annotations

from typing import Any

import attrs
from quart import Blueprint, Response, request

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import EVENTS, FOR_OPERATORS, described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.progress_stream import progress_response
from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS, data_event
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.admin.converter import ADMIN
from greenroom.schemas.admin.pulls import (
    DeleteBody,
    DeletedModel,
    PullBody,
    PullReport,
    PullReports,
    SearchQuery,
    pull_report,
)
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import Problem, invalid, missing
from greenroom.schemas.protocols.download_protocol import (
    CancelPull,
    DeleteModel,
    FoundModels,
    ListPulls,
    ModelDeleted,
    PullCancelled,
    PullModel,
    Pulls,
    PullStatus,
    SearchHub,
)

_MAX_FOUND = 100
_MAX_WORDS = 200


def pull_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that fetch, search and delete models."""
    routes = loopback_blueprint("admin pulls")
    downloads = services.refs.downloads

    @routes.post("/admin/pull")
    @described(
        "Fetch a model of the hub, or join its fetch, and tell the progress as events",
        body=PullBody,
        converter=ADMIN,
        answer=PullReport,
        media=(EVENTS,),
        problems=(*FOR_OPERATORS, 409, 503),
    )
    async def pull() -> Response:
        wire = await services.read_body(PullBody, ADMIN)
        trusts = services.settings.trust_remote_code
        message = PullModel(wire.model, probes=wire.probe, trust_remote_code=trusts)
        return await progress_response(downloads, message, _PullEvents().encode, SERVER_SENT_EVENTS)

    @routes.get("/admin/pulls")
    @described("List the fetches", answer=PullReports, problems=FOR_OPERATORS)
    async def pulls() -> Response:
        listed = await ask_actor(downloads, ListPulls(), Pulls)
        return json_response({"pulls": [attrs.asdict(pull_report(each)) for each in listed.pulls]})

    @routes.post("/admin/pull/<ident>/cancel")
    @described("Cancel a fetch; what has arrived stays", problems=(*FOR_OPERATORS, 404, 409))
    async def cancel(ident: str) -> Response:
        await ask_actor(downloads, CancelPull(ident), PullCancelled)
        return json_response({"id": ident, "state": "cancelled"})

    @routes.get("/admin/search")
    @described(
        "Search the hub for models that MLX reads", query=SearchQuery, problems=(*FOR_OPERATORS, 503, 504)
    )
    async def search() -> Response:
        found = await ask_actor(downloads, _search_message(), FoundModels)
        return json_response({"models": [attrs.asdict(each) for each in found.models]})

    @routes.post("/admin/models/delete")
    @described(
        "Delete a model's files, after it was unloaded",
        body=DeleteBody,
        converter=ADMIN,
        answer=DeletedModel,
        problems=(*FOR_OPERATORS, 404, 409, 503),
    )
    async def delete() -> Response:
        wire = await services.read_body(DeleteBody, ADMIN)
        deleted = await ask_actor(downloads, DeleteModel(wire.model), ModelDeleted)
        return json_response(attrs.asdict(DeletedModel(deleted.model, deleted.freed)))

    return routes


class _PullEvents:
    """The events of a fetch as server-sent events; the last one tells the end."""

    def __init__(self) -> None:
        self._latest: PullReport | None = None

    def encode(self, event: Any) -> bytes:
        match event:
            case PullStatus():
                self._latest = pull_report(event)
                return data_event(attrs.asdict(self._latest))
            case Failed(Problem(code="download_cancelled")):
                return self._end("cancelled")
            case Failed(problem):
                return self._end("failed", problem=problem.detail)
        return self._end("completed")

    def _end(self, state: str, **members: str) -> bytes:
        assert self._latest is not None
        return data_event({**attrs.asdict(self._latest), "state": state, **members})


def _search_message() -> SearchHub:
    words = request.args.get("q", "").strip()
    if not words:
        raise missing("q")
    if len(words) > _MAX_WORDS:
        raise invalid(f"`q` has more than {_MAX_WORDS} characters.", "q")
    limit = request.args.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 3 and 1 <= int(limit) <= _MAX_FOUND):
        raise invalid(f"`limit` must be a number from 1 to {_MAX_FOUND}.", "limit")
    return SearchHub(words, int(limit))
