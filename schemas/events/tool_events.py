"""Events of tools that the server itself calls, between the events of a model's turns.

ToolsListed*  …  (ServerCall  ToolResult)*  ApprovalWanted*
"""

from __future__ import annotations

import attrs

from greenroom.schemas.messages.messages import ContentPart, TextPart, Tool


@attrs.frozen
class ToolsListed:
    """The tools of a server that a request may use.

    Args:
        error: Reason why there are none; empty if the list came.
    """

    server: str
    tools: tuple[Tool, ...] = ()
    error: str = ""


@attrs.frozen
class ServerCall:
    """The call of a tool that the server itself runs; it begins now.

    Args:
        server: Label of the tool's MCP server; empty for a function of the program around this library.
        arguments: JSON text of an object.
        approval: Id of the request for approval that the user has granted; None if none was needed.
    """

    id: str
    server: str
    name: str
    arguments: str
    approval: str | None = None


@attrs.frozen
class ApprovalWanted:
    """A call that waits for the user's approval, in a later request."""

    id: str
    server: str
    name: str
    arguments: str


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

    @property
    def text(self) -> str:
        """The text parts, a line each, and a word for each image."""
        return "\n".join(part.text if isinstance(part, TextPart) else "[image]" for part in self.content)


ToolEvent = ToolsListed | ServerCall | ApprovalWanted | ToolResult
