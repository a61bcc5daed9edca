"""`GET /admin/events` and `GET /admin/logs`: news of the models, and the log, as they come."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import attrs
import trio
from quart import Blueprint, Response, request

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.http.answering.protocols.route_description import EVENTS, described
from greenroom.http.answering.requests.current_request import request_resources
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.http.operations.admin.event_body import event_response, named_event
from greenroom.http.process.log_ring import LINES, LOG_RING
from greenroom.schemas.admin.pulls import pull_report
from greenroom.schemas.admin.requests import LogQuery
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import Problem, ProblemError, draining, invalid
from greenroom.schemas.protocols.download_protocol import PullNews, WatchPulls
from greenroom.schemas.protocols.operator_protocol import ModelNews, WatchModels
from greenroom.schemas.protocols.pool_protocol import PoolMessage

_POLL = 0.25
"""Seconds between checks for new lines; a wake-up for each would slow down the threads that log."""
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def event_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that stream news of models and the log."""
    routes = loopback_blueprint("admin events")
    pool, downloads = services.refs.pool, services.refs.downloads

    @routes.get("/admin/events")
    @described("Follow loads, downloads, evictions and crashes", media=(EVENTS,))
    async def events() -> Response:
        news = await _watch(pool)
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
        news = await _watch(pool) if query.follow else None
        position = LOG_RING.position - query.lines

        async def receive() -> bytes | None:
            nonlocal position
            while True:
                lines, position = LOG_RING.after(position)
                if lines:
                    return b"".join(b"event: log\ndata: %b\n\n" % line for line in lines)
                if news is None or not await _goes_on(news):
                    return None

        return event_response(receive)

    return routes


async def _watch(pool: Ref[PoolMessage]) -> ReplyStream[Any]:
    """Return the news of the models, which end with the request, or when the server stops."""
    try:
        news = await pool.stream(WatchModels())
    except ActorStopped:
        raise ProblemError(draining()) from None
    request_resources().enter_context(closing(news))
    return news


async def _goes_on(news: ReplyStream[Any]) -> bool:
    """Wait before the next look at the log; return False if the server shuts down."""
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
    lines, follow = args.get("lines", str(LINES)), args.get("follow", "true")
    if not (lines.isascii() and lines.isdecimal() and len(lines) < 10):
        raise invalid(f"`lines` must be a number from 0 to {LINES}.", "lines")
    if follow not in _BOOLEANS:
        raise invalid("`follow` must be 'true' or 'false'.", "follow")
    return LogQuery(min(int(lines), LINES), _BOOLEANS[follow])
