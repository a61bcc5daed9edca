"""The messages that the tools actor accepts, and its answers: sessions with MCP servers, and calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import attrs

from greenroom.schemas.messages.messages import ContentPart, JsonObject, Tool
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
        refused: Tools that the request switches off.
    """

    label: str
    server: ToolServer = attrs.field(repr=False)
    session: str
    network: Any = attrs.field(default=None, repr=False, eq=False)
    allowed: tuple[str, ...] | None = None
    approval: tuple[str, ...] | None = None
    refused: tuple[str, ...] = ()

    def offers(self, tool: str) -> bool:
        """Return whether a request with this source may use a tool."""
        limits = (self.server.allowed_tools or None, self.allowed)
        return tool not in self.refused and all(
            limit is None or any(fnmatchcase(tool, each) for each in limit) for limit in limits
        )

    def needs_approval(self, tool: str) -> bool:
        """Return whether a call waits for the user; a request can ask for more approvals, not for fewer."""
        wishes = (self.server.require_approval, self.approval or (NEVER,))
        return any(
            ALWAYS in wish or any(fnmatchcase(tool, each) for each in wish if each != NEVER)
            for wish in wishes
        )


PythonTool = Callable[..., Any]
"""A function of the program around this library; coroutines are awaited, others run on a thread."""


@attrs.frozen
class ListTools:
    """List the tools of a server. Reply: ToolsListed, with an error instead of a problem."""

    source: ToolSource


@attrs.frozen
class ToolsListed:
    """The tools of a server that a request may use.

    Args:
        error: Why there are none; empty if the list came.
    """

    server: str
    tools: tuple[Tool, ...] = ()
    error: str = ""


@attrs.frozen
class CallTool:
    """Call a tool. Reply: ToolResult, also for a call that failed or was not answered in time.

    Closing the reply cancels the call.

    Args:
        id: Id of the call.
        target: Server of the tool, or the function itself.
        request_id: Id of the request, for log and audit.
    """

    id: str
    target: ToolSource | PythonTool
    name: str
    arguments: Mapping[str, Any] = attrs.field(repr=False)
    request_id: str = ""


@attrs.frozen
class ToolResult:
    """The result of a call.

    Args:
        content: Text and images.
        failed: True if the tool says that it failed, or could not be asked; `content` says why.
        seconds: Time that the call took.
    """

    id: str
    content: tuple[ContentPart, ...] = attrs.field(repr=False)
    failed: bool = False
    seconds: float = 0.0
    structured: JsonObject | None = attrs.field(default=None, repr=False)


@attrs.frozen
class DescribeSessions:
    """Describe the sessions. Reply: Sessions."""


@attrs.frozen
class SessionStatus:
    """The state of the session with a server.

    Args:
        label: Name of the server in the settings, or its host if a request named it.
        calls: Number of calls so far, of which `failures` failed.
        restarts: Number of times it was opened after an end that was not ours.
        error: Why it failed last; empty if it did not.
    """

    label: str
    kind: Literal["stdio", "http"]
    state: SessionState
    tools: tuple[str, ...] = ()
    calls: int = 0
    failures: int = 0
    running: int = 0
    restarts: int = 0
    error: str = ""


@attrs.frozen
class Sessions:
    """The sessions of the tools actor, those of the settings first."""

    sessions: tuple[SessionStatus, ...]


ToolsMessage = ListTools | CallTool | DescribeSessions
"""The messages of the tools actor."""
