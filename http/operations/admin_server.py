"""Routes for operators about the server: its state, settings, reload and events."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs
import trio
from quart import Blueprint, Response, request
from quart.wrappers.response import ResponseBody

from greenroom.actors.core.ref import ActorStopped, Ref, ask_actor
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.store.database_file import MEMORY
from greenroom.http.answering.current_request import attend_caller, request_resources
from greenroom.http.answering.explanation_body import explanation_body
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import EVENTS, FOR_OPERATORS, described
from greenroom.http.answering.request_parameters import query_boolean
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import SERVER_SENT_EVENTS, json_ascii
from greenroom.http.guard.host_guard import loopback_blueprint
from greenroom.http.guard.keys import REVOKED
from greenroom.http.process.log_configuration import LINES, LOG_RING
from greenroom.schemas.events.events import Failed
from greenroom.schemas.events.statistics import RowStatistics
from greenroom.schemas.problems import Problem, ProblemError, draining, invalid
from greenroom.schemas.protocols.download_protocol import PullNews, WatchPulls
from greenroom.schemas.protocols.pool_protocol import (
    DescribePool,
    ModelNews,
    PoolMessage,
    PoolStatus,
    WatchModels,
)
from greenroom.schemas.protocols.store_protocol import DescribeStore, StoreStatus
from greenroom.schemas.protocols.tools_protocol import DescribeSessions, Sessions
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.wire.admin import (
    AnswerRow,
    EffectiveSetting,
    EffectiveSettings,
    LogQuery,
    Reloaded,
    ServerStatus,
    SettingSource,
)
from greenroom.schemas.wire.admin_upkeep import pull_report


def status_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin status")
    started, refs, settings = time.monotonic(), services.refs, services.settings

    @routes.get("/admin/status")
    @described("Show the state of the server", answer=ServerStatus, problems=FOR_OPERATORS)
    async def status() -> Response:
        pool = await ask_actor(refs.pool, DescribePool(), PoolStatus)
        store = await ask_actor(refs.store, DescribeStore(), StoreStatus)
        tools = await ask_actor(refs.tools, DescribeSessions(), Sessions)
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
            mcp=tools.sessions,
            remotes=pool.remotes,
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


_UNSET: SettingSource = "default"
SECRET_VARIABLES = ("HF_TOKEN",)  # Secrets that other libraries read from the environment


def settings_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin settings")

    @routes.get("/admin/settings")
    @described("Show every setting as it holds, with its source", answer=EffectiveSettings)
    async def settings() -> Response:
        effective = tuple(effective_settings(services.settings_now))
        return json_response(attrs.asdict(EffectiveSettings(effective)))

    return routes


def effective_settings(settings: Settings) -> Iterator[EffectiveSetting]:
    """Yield every setting with its source; of secrets, only whether they are set."""
    sources: dict[str, SettingSource] = {**dict(settings.origins)}
    for field in attrs.fields(type(settings)):
        if "meaning" not in field.metadata:
            continue
        value, secret = getattr(settings, field.name), bool(field.metadata.get("secret"))
        shown = None if secret else _plain(value)
        source = sources.get(field.name, _UNSET)
        yield EffectiveSetting(field.name, shown, source, secret, value not in (None, ()))
    for name in SECRET_VARIABLES:
        given = bool(os.environ.get(name))
        yield EffectiveSetting(name, None, "environment" if given else "default", True, given)


def _plain(value: Any) -> Any:
    """Return a setting's value as JSON, without what a table of one model leaves to the server."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if attrs.has(type(value)):
        shown = (field for field in attrs.fields(type(value)) if not field.metadata.get("secret"))
        fields = {field.name: getattr(value, field.name) for field in shown}
        return {name: _plain(each) for name, each in fields.items() if each not in (None, ())}
    return value


def reload_routes(services: RouteServices) -> Blueprint:
    routes = loopback_blueprint("admin reload")

    @routes.post("/admin/reload")
    @described("Take in changed settings", answer=Reloaded, problems=(*FOR_OPERATORS, 501))
    async def reload() -> Response:
        if services.reload is None:
            detail = "This server was started by a program that gave it its settings: there are none to read."
            raise ProblemError(Problem(501, "reload_unavailable", detail))
        return json_response(attrs.asdict(await services.reload()))

    return routes


_POLL = 0.25  # Seconds between checks for new lines; a wake-up for each would slow down the threads that log


def event_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that stream news of models and the log."""
    routes = loopback_blueprint("admin events")
    pool, downloads = services.refs.pool, services.refs.downloads

    @routes.get("/admin/events")
    @described("Follow loads, downloads, evictions and crashes", media=(EVENTS,))
    async def events() -> Response:
        news = await watch_models(pool)
        try:
            await downloads.stream(WatchPulls(), into=news)
        except ActorStopped:
            raise ProblemError(draining()) from None

        async def receive() -> bytes | None:
            try:
                pieces = [_event(await news.receive())]
                while news.sender.unread:
                    pieces.append(_event(news.receive_nowait()))
            except trio.EndOfChannel:
                return None
            return b"".join(pieces)

        return event_response(receive)

    @routes.get("/admin/logs")
    @described("Read the last lines of the log, and follow it", query=LogQuery, media=(EVENTS,))
    async def logs() -> Response:
        query = _log_query(request.args)
        news = await watch_models(pool) if query.follow else None
        position = LOG_RING.position - query.lines

        async def receive() -> bytes | None:
            nonlocal position
            while True:
                lines, position = LOG_RING.after(position)
                if lines:
                    return b"".join(b"event: log\ndata: %b\n\n" % line for line in lines)
                if news is None or not await goes_on(news):
                    return None

        return event_response(receive)

    return routes


async def watch_models(pool: Ref[PoolMessage]) -> ReplyStream[Any]:
    """Return the news of the models, which end with the request, or when the server stops."""
    try:
        news = await pool.stream(WatchModels())
    except ActorStopped:
        raise ProblemError(draining()) from None
    request_resources().enter_context(closing(news))
    return news


async def goes_on(news: ReplyStream[Any]) -> bool:
    """Wait before the next look at what has no news of its own; return False if the server shuts down."""
    with trio.move_on_after(_POLL):
        try:
            while not isinstance(await news.receive(), Failed):
                pass
        except trio.EndOfChannel:
            pass
        return False
    return True


def _event(news: ModelNews | PullNews | Failed) -> bytes:
    match news:
        case Failed(problem):
            return named_event("error", _error(problem))
        case PullNews(stage, status):
            report = {**attrs.asdict(pull_report(status)), "stage": stage}
            return named_event("download", {**report, "time": round(time.time(), 3)})
        case ModelNews():
            return _model_event(news)


def _model_event(news: ModelNews) -> bytes:
    told = {
        "model": news.key.model,
        "stage": news.stage,
        "fraction": news.fraction,
        "freed_bytes": news.nbytes,
        "detail": news.detail,
        "for": None if news.cause is None else news.cause.model,
    }
    given = {name: value for name, value in told.items() if value is not None}
    ago = 0.0 if news.since is None else time.monotonic() - news.since
    return named_event(news.kind, {**given, "time": round(time.time() - ago, 3)})


def _error(problem: Problem) -> dict[str, Any]:
    return attrs.asdict(problem, filter=lambda field, _: field.name in ("status", "code", "detail"))


def _log_query(args: Any) -> LogQuery:
    lines = args.get("lines", str(LINES))
    if not (lines.isascii() and lines.isdecimal() and len(lines) < 10):
        raise invalid(f"`lines` must be a number from 0 to {LINES}.", "lines")
    return LogQuery(min(int(lines), LINES), query_boolean(args, "follow") is not False)


HEARTBEAT = 10.0  # Seconds of silence after which a comment is sent, so that proxies and clients see life


class EventBody(ResponseBody):
    """A body of events from a function that returns the next ones. `receive`: function that returns the bytes
    of the next events, or None at the end. It may be cancelled and called again without losing an event.
    """

    def __init__(self, receive: Callable[[], Awaitable[bytes | None]]) -> None:
        self._receive = receive
        self._opened = False
        self._ended = False
        self._waiting = trio.CancelScope()

    def end(self) -> None:
        """End the body at once, with an event that the operator's key is no longer valid."""
        self._ended = True
        self._waiting.cancel("the key was revoked")

    async def __aenter__(self) -> EventBody:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the source open: the request's resources close it."""

    def __aiter__(self) -> EventBody:
        return self

    async def __anext__(self) -> bytes:
        if not self._opened:
            self._opened = True
            return b": hello\n\n"  # the headers are sent with the first piece
        if self._ended:
            raise StopAsyncIteration
        piece: bytes | None = b": no news\n\n"
        with trio.move_on_after(HEARTBEAT) as self._waiting:
            piece = await self._receive()
        if self._ended:
            return named_event("error", {"error": {"code": REVOKED.code, "message": REVOKED.detail}})
        if piece is None:
            raise StopAsyncIteration
        return piece


def event_response(receive: Callable[[], Awaitable[bytes | None]]) -> Response:
    """Return a response with the events that a function returns (see `EventBody`)."""
    headers = {"content-type": SERVER_SENT_EVENTS, "cache-control": "no-cache", "x-accel-buffering": "no"}
    body = EventBody(receive)
    attend_caller(body.end)
    response = Response(b"" if request.method == "HEAD" else body, headers=headers)  # news have no end
    response.timeout = None
    return response


def named_event(name: str, document: Mapping[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json_ascii(document))


def answer_row(row: RowStatistics) -> AnswerRow:
    explanation = None if row.explanation is None else explanation_body(row.explanation)
    return AnswerRow(**attrs.asdict(row, recurse=False) | {"explanation": explanation})
