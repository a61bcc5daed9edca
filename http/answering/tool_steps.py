"""Steps of tools that this server calls, as an extra member of answers without a place for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from greenroom.http.answering.collecting import AnswerPart, CalledTool
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.events.tool_events import ServerCall, ToolResult, ToolsListed

STEPS = "greenroom_steps"
"""Member with the steps, in a complete message and in deltas; SDKs ignore it."""


def step_of(event: InferenceEvent) -> dict[str, Any] | None:
    """Return the step of an event; None for an event that is none."""
    match event:
        case ToolsListed(server, tools, error):
            names = [tool.name for tool in tools]
            return {"type": "tools_listed", "server": server, "tools": names, "error": error or None}
        case ServerCall(ident, server, name, arguments):
            step = {"type": "call", "id": ident, "server": server, "name": name}
            return {**step, "arguments": arguments}
        case ToolResult(ident, _, failed, seconds):
            return {"type": "result", "id": ident, "output": event.text, "failed": failed, "seconds": seconds}
    return None


def steps_of(parts: Iterable[AnswerPart]) -> tuple[dict[str, Any], ...]:
    events: list[Any] = []
    for part in parts:
        if isinstance(part, ToolsListed):
            events.append(part)
        elif isinstance(part, CalledTool):
            events += [part.call] if part.result is None else [part.call, part.result]
    return tuple(step for event in events if (step := step_of(event)) is not None)
