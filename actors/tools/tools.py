"""The tools actor: owns the sessions with MCP servers, and calls tools for all requests."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import trio

from greenroom.actors.core.ref import Control, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.records.audit import AuditBook
from greenroom.actors.records.inspector import Inspector
from greenroom.actors.records.tracing import tool_span
from greenroom.actors.tools.session import IDLE_SECONDS, Figures, Session, SessionFailed
from greenroom.schemas.events.result_events import ServerCall, ToolResult, ToolsListed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import ContentPart, TextPart
from greenroom.schemas.problems import draining, internal_error
from greenroom.schemas.protocols.tools_protocol import (
    CallTool,
    DescribeSessions,
    ListTools,
    PythonTool,
    Sessions,
    SessionStatus,
    ToolsMessage,
    ToolSource,
)
from greenroom.schemas.settings.settings import Settings

MAX_SESSIONS = 64  # Most sessions at once; the one that idles longest makes room for another
_TICK = 1.0

log = get_logger(actor="tools")


class Tools:
    """The actor of tools; a session is opened and closed in its tasks, and never in a request's.

    Args:
        audit: Book of the audit, with a row for each call; None for none.
        inspector: Inspector of the requests, which keeps their calls; None for none.
        idle_seconds: Seconds without a call after which a session ends.
    """

    def __init__(
        self,
        settings: Settings,
        audit: AuditBook | None = None,
        inspector: Inspector | None = None,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._inbox: Inbox[ToolsMessage] = Inbox()
        self.ref: Ref[ToolsMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._settings = settings
        self._audit = audit
        self._inspector = inspector
        self._idle_seconds = idle_seconds
        self._sessions: dict[str, Session] = {}
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Receive messages until cancelled; sessions are then closed."""
        log.debug("started")
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._inbox.forward, self._control)
                self._nursery.start_soon(self._end_idle)
                while True:
                    envelope = await self._control.receive()
                    self._receive(envelope.message, envelope.reply or Reply())
                    del envelope
        finally:
            self._control.close(draining())
            self._inbox.fail_unanswered(draining())
            log.debug("stopped")

    def _receive(self, message: ToolsMessage, reply: Reply) -> None:
        match message:
            case ListTools(source):
                self._nursery.start_soon(self._attended, reply, partial(self._list, source))
            case CallTool():
                self._nursery.start_soon(self._attended, reply, partial(self._call, message))
            case DescribeSessions():
                reply.send(Sessions(tuple(self._statuses())))

    async def _attended(self, reply: Reply, answer: Any) -> None:
        """Send an answer, unless its receiver leaves before."""
        with trio.CancelScope() as scope:
            reply.watch(lambda: scope.cancel("nobody waits for it"))
            if not scope.cancel_called:
                try:
                    reply.send(await answer())
                except Exception:
                    log.exception("message failed")
                    reply.fail(internal_error())

    async def _list(self, source: ToolSource) -> ToolsListed:
        try:
            tools = await self._session(source).list_tools()
        except SessionFailed as error:
            return ToolsListed(source.label, (), f"The MCP server '{source.label}': {error}."[:500])
        return ToolsListed(source.label, tuple(tool for tool in tools if source.offers(tool.name)))

    async def _call(self, message: CallTool) -> ToolResult:
        began, target, error = time.monotonic(), message.target, ""
        content: tuple[ContentPart, ...]
        with tool_span(message.name, message.id, message.trace) as span:
            try:
                if isinstance(target, ToolSource):
                    session = self._session(target)
                    content, failed = await session.call(message.name, message.arguments, span.trace)
                else:
                    content, failed = await _call_function(target, message.arguments)
            except SessionFailed as lost:
                where = f"The MCP server '{target.label}': " if isinstance(target, ToolSource) else ""
                content, failed, error = (TextPart(f"{where}{lost}."),), True, "tool_not_answered"
            if failed:
                span.fail(error or "tool_failed")
        server = target.label if isinstance(target, ToolSource) else ""
        seconds = round(time.monotonic() - began, 4)
        fields = {"server": server, "tool": message.name, "failed": failed, "request_id": message.request_id}
        log.info("tool called", seconds=seconds, **fields)
        result = ToolResult(message.id, content, failed, seconds)
        if self._inspector is not None:
            arguments = json.dumps(message.arguments, ensure_ascii=False)
            self._inspector.event(message.request_id, ServerCall(message.id, server, message.name, arguments))
            self._inspector.event(message.request_id, result)
        if self._audit is not None:
            error = error or ("tool_failed" if failed else "")
            self._audit.add_call(message.request_id, message.id, f"{server}/{message.name}", seconds, error)
        return result

    def _session(self, source: ToolSource) -> Session:
        """Return the open session with a server, which may have to be started. Raises SessionFailed: it
        failed too often, or there are too many.
        """
        session = self._sessions.get(source.session)
        is_same = session is not None and session.source.server == source.server  # else changed settings
        if session is None or not (is_same and session.is_open):
            figures = session.figures if session is not None and is_same else Figures()
            if session is not None:
                session.end()
            elif len(self._sessions) >= MAX_SESSIONS:
                self._make_room()
            session = self._sessions[source.session] = Session(source, figures)
            self._nursery.start_soon(session.run)
        return session

    def _make_room(self) -> None:
        idle = [(each.last_used, key) for key, each in self._sessions.items() if not each.running]
        if not idle:
            raise SessionFailed("it cannot be reached while so many others are in use")
        self._sessions.pop(min(idle)[1]).end()

    async def _end_idle(self) -> None:
        while True:
            await trio.sleep(_TICK)
            now = trio.current_time()
            for session in self._sessions.values():
                if session.is_open and not session.running and now - session.last_used > self._idle_seconds:
                    session.end()

    def _statuses(self) -> list[SessionStatus]:
        unused = [
            SessionStatus(name, server.kind, "idle")
            for name, server in self._settings.tool_servers.items()
            if name not in self._sessions
        ]
        return [*unused, *(session.status for session in self._sessions.values())]


async def _call_function(
    function: PythonTool, arguments: Mapping[str, Any]
) -> tuple[tuple[ContentPart, ...], bool]:
    """Return the result of a program's own function as text, and whether it failed."""
    call = partial(function, **arguments)
    try:
        if inspect.iscoroutinefunction(function):
            result = await call()
        else:
            result = await trio.to_thread.run_sync(call, abandon_on_cancel=True)
        if not isinstance(result, str):
            result = json.dumps(result, ensure_ascii=False, default=str)
    except (Exception, SystemExit) as error:  # the latter comes of functions that read a command line
        return (TextPart(f"{type(error).__name__}: {error}"),), True
    return (TextPart(result),), False
