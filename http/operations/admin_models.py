"""Routes for operators about models: what is loaded, loads, pins, probes and downloads."""

from __future__ import annotations

import time
from typing import Any

import attrs
from quart import Blueprint, Response, request

from greenroom.actors.core.ref import answer_or_failed, ask_actor
from greenroom.actors.requests.generation import Generation, acquire_first
from greenroom.http.answering.current_request import request_id
from greenroom.http.answering.event_stream import progress_response
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, FOR_OPERATORS, JSON, described
from greenroom.http.answering.request_parameters import parse_model_key, query_number
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import SERVER_SENT_EVENTS, data_event
from greenroom.http.guard.host_guard import loopback_blueprint
from greenroom.http.operations.admin_server import answer_row, named_event
from greenroom.schemas.events.events import Failed
from greenroom.schemas.events.statistics import PhaseSeconds
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import findings_of
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing
from greenroom.schemas.protocols.download_protocol import (
    CancelPull,
    DeleteModel,
    FoundModels,
    ListPulls,
    ModelDeleted,
    PullCancelled,
    Pulled,
    PullModel,
    Pulls,
    PullStatus,
    SearchHub,
)
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    AdapterChanged,
    ChangeAdapter,
    DescribeModel,
    DescribePool,
    LoadPlan,
    ModelDescriptions,
    ModelPinned,
    ModelStatus,
    ModelUnloaded,
    PinModel,
    PlanLoad,
    PoolStatus,
    Probed,
    ProbeModel,
    ProbeProgress,
    UnloadModel,
)
from greenroom.schemas.wire.admin import (
    ADMIN,
    AdapterRequest,
    ChangedAdapter,
    ListedAdapter,
    ListedAdapters,
    LoadedModel,
    ModelRequest,
    PinnedModel,
    PinRequest,
    PlannedLoad,
    ProbeRequest,
    UnloadedModel,
    UnloadRequest,
    UsedModel,
    UsedModels,
)
from greenroom.schemas.wire.admin_upkeep import (
    DeleteBody,
    DeletedModel,
    PullBody,
    PullReport,
    PullReports,
    SearchQuery,
    pull_report,
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
        adapters=tuple(name for name, _ in status.adapters),
        ranks=() if status.snapshot is None else status.snapshot.ranks,
    )


def adapter_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin adapters")
    pool = services.refs.pool

    @routes.get("/admin/adapters")
    @described("List the LoRA adapters with their bases and their bytes in memory", answer=ListedAdapters)
    async def adapters() -> Response:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        loaded = dict(each for model in status.models for each in model.adapters)
        known = (await ask_actor(pool, DescribeModel(None), ModelDescriptions)).models
        listed = tuple(
            ListedAdapter(each.id, each.model or None, loaded.get(each.id, 0), _detail(each.problem))
            for each in known
            if each.is_adapter
        )
        return json_response(attrs.asdict(ListedAdapters(listed)))

    @routes.post("/admin/adapters")
    @described(
        "Load a LoRA adapter and its base, also a new one; a hub id that is not here is fetched first",
        body=AdapterRequest,
        converter=ADMIN,
        answer=ChangedAdapter,
        problems=ANSWERED_BY_A_MODEL,
    )
    async def load_adapter() -> Response:
        name = parse_model_key((await services.read_body(AdapterRequest, ADMIN)).name, "name").model
        change = ChangeAdapter(name, available=True)
        found = await answer_or_failed(pool, change, AdapterChanged)
        if isinstance(found, Failed) and found.problem.code == "model_not_found":
            pulled = await answer_or_failed(services.refs.downloads, PullModel(name, probes=False), Pulled)
            if isinstance(pulled, Failed) and pulled.problem.status != 400:  # else it is no hub id
                raise ProblemError(pulled.problem)
        changed = await ask_actor(pool, change, AdapterChanged)
        prompt = RawInput("a", answered=False)
        with Generation(pool, InferenceRequest(request_id(), ModelKey(changed.name), prompt)) as loading:
            async for event in loading:
                if isinstance(event, Failed):
                    raise ProblemError(event.problem)
        return json_response(attrs.asdict(ChangedAdapter(changed.name, changed.base.model)))

    @routes.delete("/admin/adapters/<path:name>")
    @described(
        "Unload a LoRA adapter: running rows finish on it, and no new request may name it",
        answer=ChangedAdapter,
        problems=(404,),
    )
    async def unload_adapter(name: str) -> Response:
        changed = await ask_actor(pool, ChangeAdapter(name, available=False), AdapterChanged)
        return json_response(attrs.asdict(ChangedAdapter(changed.name, changed.base.model)))

    return routes


def _detail(problem: Problem | None) -> str | None:
    return None if problem is None else problem.detail


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
        reason=_detail(plan.problem),
        notices=known.notices,
    )


def residence_routes(services: RouteServices) -> Blueprint:
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


def probe_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin probes")
    pool = services.refs.pool

    @routes.post("/admin/models/probe")
    @described(
        "Ask a model what it can do, and store the findings",
        body=ProbeRequest,
        converter=ADMIN,
        media=(JSON, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def probe() -> Response:
        wire, message = await services.read_request(ProbeRequest, ADMIN, {}, _parse)
        if not wire.stream:
            return json_response(findings_of((await ask_actor(pool, message, Probed)).record))
        return await progress_response(pool, message, _event, SERVER_SENT_EVENTS)

    return routes


def _parse(wire: ProbeRequest, _: JsonObject) -> ProbeModel:
    if wire.max_tokens is not None and wire.max_tokens < 1:
        raise invalid("`max_tokens` must be at least 1.", "max_tokens")
    return ProbeModel(parse_model_key(wire.model).model, wire.max_tokens)


def _event(event: ProbeProgress | Probed | Failed) -> bytes:
    match event:
        case ProbeProgress(answered, questions):
            return named_event("progress", {"answered": answered, "questions": questions})
        case Probed(record):
            return named_event("findings", findings_of(record))
        case Failed(problem):
            told = {"status": problem.status, "code": problem.code, "detail": problem.detail}
            return named_event("error", told)


_MAX_FOUND = 100
_MAX_WORDS = 200


def pull_routes(services: RouteServices) -> Blueprint:
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
    return SearchHub(words, query_number(request.args, "limit", 1, _MAX_FOUND) or 20)
