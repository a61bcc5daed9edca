"""The messages that the tools actor accepts, and its answers: sessions with MCP servers, and calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import attrs

from greenroom.schemas.events.result_events import ServerCall
from greenroom.schemas.messages.messages import Tool
from greenroom.schemas.messages.requests import TraceContext
from greenroom.schemas.settings.tool_servers import ALWAYS, NEVER, ToolServer

SessionState = Literal["idle", "starting", "ready", "failed"]


@attrs.frozen
class ToolSource:
    """An MCP server, as one request may use it.

    Args:
        label: Name of the server in the request.
        session: Key of the session, which requests share; differs where credentials do.
        network: Network backend of httpcore2 that checks addresses, for a server that a request names by
            address; None for one of the settings.
        allowed: Names or patterns of the tools on offer, besides those of the settings; None for all.
        approval: Tools whose calls need an approval, `always` or `never`; None for the settings' own.
        exempt: Tools whose calls need no approval in spite of `approval`.
        refused: Tools that the request switches off.
        rights: Names or patterns of the tools that the caller's key allows.
    """

    label: str
    server: ToolServer = attrs.field(repr=False)
    session: str
    network: Any = attrs.field(default=None, repr=False, eq=False)
    allowed: tuple[str, ...] | None = None
    approval: tuple[str, ...] | None = None
    exempt: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    rights: tuple[str, ...] = ("*",)

    def offers(self, tool: str) -> bool:
        """Return whether a request with this source may use a tool."""
        limits = (self.server.allowed_tools or None, self.allowed, self.rights)
        return tool not in self.refused and all(
            limit is None or any(fnmatchcase(tool, each) for each in limit) for limit in limits
        )

    def needs_approval(self, tool: str) -> bool:
        """Return whether a call waits for the user; a request can ask for more approvals, not for fewer."""
        own = (NEVER,) if self.approval is None or tool in self.exempt else self.approval
        wishes = (self.server.require_approval, own)
        return any(
            ALWAYS in wish or any(fnmatchcase(tool, each) for each in wish if each != NEVER)
            for wish in wishes
        )


PythonTool = Callable[..., Any]
"""A function of the program around this library; coroutines are awaited, others run on a thread."""


@attrs.frozen
class ToolLoop:
    """The tools that this server calls on behalf of one request, and their limits.

    Args:
        sources: Servers, in the order in which their tools are described.
        max_turns: Most generations of the model.
        max_calls: Most calls; None for no limit.
        approved: Calls of an earlier response that the user has approved; they run first.
        asks: True if the protocol can ask the user for approvals; else calls that need one are refused.
        listed: Labels of servers whose lists the conversation shows already.
        chosen: Labels of servers, each with the name of a tool or None for all of its tools, that the
            request's choice of tools names. Where the choice limits the callable tools, they are callable
            too; else one of them must be called at first.
    """

    sources: tuple[ToolSource, ...] = ()
    functions: tuple[tuple[Tool, PythonTool], ...] = ()
    max_turns: int = 10
    max_calls: int | None = None
    approved: tuple[ServerCall, ...] = ()
    asks: bool = False
    listed: frozenset[str] = frozenset()
    chosen: frozenset[tuple[str, str | None]] = frozenset()


@attrs.frozen
class ListTools:
    """List the tools of a server. Reply: ToolsListed, with an error instead of a problem."""

    source: ToolSource


@attrs.frozen
class CallTool:
    """Call a tool. Reply: ToolResult, also for a call that failed or was not answered in time.

    Closing the reply cancels the call.
    """

    id: str
    target: ToolSource | PythonTool
    name: str
    arguments: Mapping[str, Any] = attrs.field(repr=False)
    request_id: str = ""
    trace: TraceContext | None = None  # Place of the request in a trace; None without one


@attrs.frozen
class DescribeSessions:
    """Describe the sessions. Reply: Sessions."""


@attrs.frozen
class SessionStatus:
    """The state of the session with a server.

    Args:
        label: Name of the server, in the settings or in the request that named its address.
        calls: Number of calls so far, of which `failures` failed.
        tools: Names of its tools, as far as they are known.
        running: Number of calls under way.
        lost: Number of sessions that failed.
        error: Why a session, or the list of its tools, failed last; empty if none did.
        is_of_settings: False if a request named the server by its address.
    """

    label: str
    kind: Literal["stdio", "http"]
    state: SessionState
    tools: tuple[str, ...] = ()
    calls: int = 0
    failures: int = 0
    running: int = 0
    lost: int = 0
    error: str = ""
    is_of_settings: bool = True


@attrs.frozen
class Sessions:
    """The sessions of the tools actor, those of the settings first."""

    sessions: tuple[SessionStatus, ...]


ToolsMessage = ListTools | CallTool | DescribeSessions
"""The messages of the tools actor."""
