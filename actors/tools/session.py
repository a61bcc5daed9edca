"""A session with one MCP server: opened at the first need, ended after idling, lost when the server ends."""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from greenroom.actors.pool.residence_rules import RestartIntensity
from greenroom.schemas.file_formats import image_format
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import AudioPart, ContentPart, ImagePart, TextPart, Tool
from greenroom.schemas.messages.requests import TraceContext
from greenroom.schemas.protocols.tools_protocol import SessionState, SessionStatus, ToolSource
from greenroom.schemas.settings.tool_servers import pairs

if TYPE_CHECKING:
    from mcp import Client

IDLE_SECONDS = 300.0  # Seconds without a call after which a session ends
LIST_SECONDS = 60.0  # Seconds after which a list of tools is asked for again
MAX_TOOLS = 512  # Most tools of one server
_CLOSE_SECONDS = 5.0  # Longest time of the end of a session, which a server may leave unanswered
_SHORTEST_KEY = 8  # Fewest characters of what is taken for a secret
_MAX_PAGES = 20
_MAX_DESCRIPTION = 10_000
_MAX_ERROR = 300

log = get_logger(actor="tools")


class SessionFailed(Exception):
    """An error of a server in words for clients: it cannot be reached, was lost, or did not answer."""


CallAnswer = tuple[tuple[ContentPart, ...], bool]
"""The content of a call's result, and whether it failed."""


@attrs.define
class Figures:
    """Figures of all sessions with a server, one after another."""

    calls: int = 0
    failed: int = 0
    lost: int = 0
    error: str = ""
    failures: RestartIntensity = attrs.field(factory=RestartIntensity)


class Session:
    """A session with one server, which many requests share; a lost one is not opened again.

    Attributes:
        running: Number of calls that wait for their results.
        is_open: False once it ends, or is lost.

    Raises:
        SessionFailed: The server failed too often within a minute.
    """

    def __init__(
        self, source: ToolSource, figures: Figures, clock: Callable[[], float] = trio.current_time
    ) -> None:
        if (seconds := figures.failures.seconds_left(clock())) > 0:
            raise SessionFailed(
                f"it failed repeatedly; in {seconds:.0f} s it is tried again ({figures.error})"
            )
        self.source = source
        self.figures = figures
        self.running = 0
        self.is_open = True
        self.last_used = clock()
        self._clock = clock
        self._client: Client | None = None
        self._state: SessionState = "starting"
        self._opened = trio.Event()
        self._ended = trio.Event()
        self._tools: tuple[Tool, ...] | None = None
        self._listed_at = 0.0
        self._error = ""
        self._listing = trio.Lock()

    @property
    def status(self) -> SessionStatus:
        names = tuple(tool.name for tool in self._tools or ())
        own, kind = self.figures, self.source.server.kind
        figures = own.calls, own.failed, self.running, own.lost, own.error
        is_named = self.source.network is None
        return SessionStatus(self.source.label, kind, self._state, names, *figures, is_named)

    def end(self) -> None:
        """End the session in its own task, soon."""
        self.is_open = False
        self._ended.set()

    async def run(self) -> None:
        """Open the session, and close it after idling or when the server is lost. Never raises its errors."""
        started = self._clock()
        try:
            with trio.move_on_after(self.source.server.timeout) as opening:
                async with self._connected() as client:
                    opening.deadline = float("inf")
                    self._client, self._state = client, "ready"
                    self._opened.set()
                    seconds = round(self._clock() - started, 3)
                    log.info("tool server started", server=self.source.label, seconds=seconds)
                    try:
                        await self._ended.wait()
                    finally:  # also if what follows its changes fails
                        opening.deadline = trio.current_time() + _CLOSE_SECONDS
            if opening.cancelled_caught:
                late = f"it did not start within {self.source.server.timeout:g} s"
                self._lose(late if self._state == "starting" else "it failed, and left that unanswered")
        except Exception as error:  # whatever the SDK and a hostile server make of each other
            self._lose(_reason(error))
        finally:
            self._client, self._tools = None, None
            self.is_open = False
            if self._error:
                self._state = "failed"
                log.warning("tool server lost", server=self.source.label, reason=self._error)
            else:
                self._state = "idle"
                log.info("tool server ended", server=self.source.label)
            self._opened.set()

    async def list_tools(self) -> tuple[Tool, ...]:
        """Return all tools of the server, from its list or from that of less than a minute ago. Raises
        SessionFailed: there is no list.
        """
        async with self._listing:
            if self._tools is None or self._clock() - self._listed_at > LIST_SECONDS:
                client = await self._ready()
                try:
                    self._tools = await self._bounded(self._all_tools(client))
                except SessionFailed as error:
                    self.figures.error = str(error)
                    log.warning("tool list lost", server=self.source.label, reason=str(error))
                    raise
                self._listed_at = self._clock()
            return self._tools

    async def call(
        self, name: str, arguments: Mapping[str, Any], trace: TraceContext | None = None
    ) -> CallAnswer:
        """Return the result of a call. Raises SessionFailed: there is no result."""
        self.running += 1
        self.figures.calls += 1
        try:
            client = await self._ready()
            meta: Any = None if trace is None else trace.fields
            result = await self._bounded(client.call_tool(name, dict(arguments), meta=meta))
        except SessionFailed:
            self.figures.failed += 1
            raise
        finally:
            self.running -= 1
            self.last_used = self._clock()
        self.figures.failed += result.is_error
        parts = tuple(_content_part(block) for block in result.content)
        return parts, bool(result.is_error)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        # The import takes a second, in which other requests go on.
        roads = await trio.to_thread.run_sync(importlib.import_module, "greenroom.actors.tools.transports")
        from mcp import Client
        from mcp_types import Implementation

        program = roads.Program(self.source.server, self._lose)
        is_program = self.source.server.kind == "stdio"
        road: Any = program.open() if is_program else roads.open_address(self.source, self._lose)
        info = Implementation(name="greenroom", version="1")
        client = Client(road, client_info=info, message_handler=self._hear, cache=None)
        try:
            async with client, trio.open_nursery() as nursery:
                # It would match a server's own patterns with its own texts, for as long as these like.
                client.session.validate_tool_result = _trust  # type: ignore[method-assign,assignment]
                nursery.start_soon(self._follow_changes, client)
                yield client
                nursery.cancel_scope.cancel("the session ends")
        except Exception as error:
            said = program.errors.strip().splitlines()
            last = f": {said[-1][:_MAX_ERROR]}" if said else ""
            raise SessionFailed(self._without_secrets(f"{_reason(error)}{last}")) from error

    async def _ready(self) -> Client:
        self.last_used = self._clock()
        await self._opened.wait()
        if self._client is None:
            raise SessionFailed(self._error or "it is closed")
        return self._client

    async def _bounded(self, answer: Any) -> Any:
        """Return an answer of the server, within its time limit and with errors in our words."""
        seconds = self.source.server.timeout
        try:
            with trio.fail_after(seconds):
                return await answer
        except trio.TooSlowError:
            raise SessionFailed(f"it did not answer within {seconds:g} s") from None
        except Exception as error:
            # A lost session fails its calls before its own task knows why.
            await trio.lowlevel.checkpoint()
            raise SessionFailed(self._error or self._without_secrets(_reason(error))) from None

    def _without_secrets(self, text: str) -> str:
        """Return words of the server without the keys that the settings give it."""
        server = self.source.server
        for value in pairs((*server.env, *server.headers)).values():
            key = value.rpartition(" ")[2]
            text = text.replace(key, "…") if len(key) >= _SHORTEST_KEY else text
        return text

    async def _all_tools(self, client: Client) -> tuple[Tool, ...]:
        found: dict[str, Tool] = {}
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools[: MAX_TOOLS - len(found)]:
                param = f"mcp.{self.source.label}.{tool.name}"
                schema = dict(tool.input_schema or {})
                described = (tool.description or "")[:_MAX_DESCRIPTION]
                found.setdefault(tool.name, Tool(tool.name, described, schema, param=param))
            if (cursor := page.next_cursor) is None or len(found) >= MAX_TOOLS:
                break
        return tuple(found.values())

    async def _hear(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._forget_list()
        await trio.lowlevel.checkpoint()

    async def _follow_changes(self, client: Client) -> None:
        """Hear of changed lists from servers of the newer protocol, which tell only those who listen."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from mcp.shared.exceptions import MCPError

        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._forget_list()
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            pass  # lists are asked for again after a minute

    def _forget_list(self) -> None:
        if self._tools is not None:
            log.info("tool list changed", server=self.source.label)
            self._tools = None

    def _lose(self, reason: str) -> None:
        if self.is_open:
            self._error = self.figures.error = reason
            self.figures.lost += 1
            self.figures.failures.record_failure(self._clock())
            self.end()


async def _trust(_name: str, _result: object) -> None:
    await trio.lowlevel.checkpoint()


def _content_part(block: Any) -> ContentPart:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "image" | "audio" as kind:
            try:
                data = base64.b64decode(block.data, validate=True)
            except (binascii.Error, ValueError):
                return TextPart(f"[{kind} that could not be decoded]")
            if kind == "audio":
                return AudioPart(data)
            return TextPart("[image of an unknown format]") if image_format(data) is None else ImagePart(data)
        case "resource":
            resource = block.resource
            return TextPart(getattr(resource, "text", None) or f"[resource {resource.uri}]")
        case "resource_link":
            return TextPart(f"[resource {block.uri}: {block.name}]")
    return TextPart(f"[content of the type {block.type}]")


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, SessionFailed):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"it could not be started or reached ({error.strerror})"
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_MAX_ERROR].rstrip(".")
